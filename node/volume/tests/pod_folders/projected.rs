//! Volumes of many sources: tokens and their renewal, what the pod tells of itself.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use swiftlet_model::control_plane::RefKind;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::Volumes as _;
use swiftlet_sys::mount;

use crate::support::{Fixture, UID, pod, read};

/// What admission gives to a pod that says nothing.
pub(crate) fn api_access(expiration_s: i64) -> serde_json::Value {
    json!([{"name": "access", "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": expiration_s}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
        ]}},
    ]}}])
}

pub(crate) fn fixture(life_s: i64) -> Fixture {
    let fixture = Fixture::new();
    let ca = [("ca.crt", "-----BEGIN")];
    fixture
        .table
        .put(RefKind::ConfigMap, "kube-root-ca.crt", &ca);
    *fixture.table.token_life.lock().unwrap() = Some(SignedDuration::from_secs(life_s));
    fixture
}

#[tokio::test]
async fn the_access_to_the_api_is_there_after_one_request_for_a_token() {
    let fixture = fixture(3607);
    let pod = pod(api_access(3607), None);
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    let access = &places["access"];
    assert!(access.ends_with("kubernetes.io~projected/access"));
    assert!(mount::is_mounted(access).unwrap());
    assert_eq!(read(access, "token"), "head.1.sign");
    assert_eq!(read(access, "ca.crt"), "-----BEGIN");
    assert_eq!(read(access, "namespace"), "default");
    let link = std::fs::read_link(access.join("token")).unwrap();
    assert_eq!(link, std::path::Path::new("..data/token"));
    fixture.volumes.set_up(&pod).await.unwrap();
    fixture.volumes.refresh(&pod).await.unwrap();
    let asked = fixture.table.tokens.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].service_account, "default");
    assert_eq!(asked[0].pod.uid.as_str(), UID);
    assert_eq!(
        (asked[0].audience.as_str(), asked[0].expiration_s),
        ("", 3607)
    );
    fixture.tear_down().await;
}

#[tokio::test]
async fn a_token_is_renewed_in_time_and_kept_while_none_can_be_had() {
    let fixture = fixture(600);
    let (pod, uid) = (pod(api_access(600), None), PodUid::from(UID));
    assert_eq!(fixture.volumes.refresh_due(&uid), None);
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    let due = fixture.volumes.refresh_due(&uid).unwrap();
    let soonest = Duration::from_secs(470);
    assert!(due >= soonest && due <= Duration::from_mins(8), "{due:?}");

    fixture.table.clock.turn(481);
    assert_eq!(fixture.volumes.refresh_due(&uid), Some(Duration::ZERO));
    *fixture.table.token_life.lock().unwrap() = None;
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(read(&places["access"], "token"), "head.1.sign");
    let retry = fixture.volumes.refresh_due(&uid).unwrap();
    assert_eq!(retry, Duration::from_secs(30));

    fixture.table.clock.turn(30);
    *fixture.table.token_life.lock().unwrap() = Some(SignedDuration::from_secs(600));
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(read(&places["access"], "token"), "head.3.sign");

    fixture.table.clock.turn(601);
    *fixture.table.token_life.lock().unwrap() = None;
    let error = fixture.volumes.refresh(&pod).await.unwrap_err().to_string();
    assert!(
        error.contains("failed to fetch token"),
        "an ended token is no token: {error}"
    );
    fixture.tear_down().await;
    assert_eq!(fixture.volumes.refresh_due(&uid), None);
}

#[tokio::test]
async fn a_token_belongs_to_the_pods_user() {
    let fixture = fixture(3600);
    let mut pod = (*pod(api_access(3600), None)).clone();
    let look = |path: &std::path::Path| {
        let found = std::fs::metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    let context = |user: Option<i64>, group: Option<i64>| {
        serde_json::from_value(json!({"runAsUser": user, "fsGroup": group})).unwrap()
    };
    for (user, group, expected) in [
        (None, None, (0, 0, 0o644)),
        (Some(1000), None, (1000, 0, 0o600)),
        (Some(1000), Some(2000), (1000, 2000, 0o640)),
    ] {
        pod.spec.as_mut().unwrap().security_context = Some(context(user, group));
        let places = fixture
            .volumes
            .set_up(&Arc::new(pod.clone()))
            .await
            .unwrap();
        assert_eq!(look(&places["access"].join("token")), expected);
    }
    fixture.tear_down().await;
}

#[tokio::test]
async fn what_is_written_about_a_pod_is_seen_in_it() {
    let fixture = Fixture::new();
    let volume = json!([{"name": "about", "downwardAPI": {"items": [
        {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {"path": "memory", "resourceFieldRef": {
            "containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
    ]}}]);
    let first = pod(volume, None);
    let places = fixture.volumes.set_up(&first).await.unwrap();
    assert_eq!(read(&places["about"], "notes"), "");
    assert_eq!(
        read(&places["about"], "memory"),
        "1024",
        "all that the node has"
    );
    let mut second = (*first).clone();
    let notes = [("build".to_owned(), "7".to_owned())];
    second.metadata.annotations = Some(notes.into());
    fixture.volumes.refresh(&Arc::new(second)).await.unwrap();
    assert_eq!(read(&places["about"], "notes"), "build=\"7\"");
    fixture.tear_down().await;
}
