//! Volumes on a node that has booted while its control plane cannot be reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use swiftlet_model::control_plane::{ControlPlane, RefKind};
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::Volumes as _;
use swiftlet_volume::{Folders, PodFolders};

use crate::projected::{api_access, fixture};
use crate::support::{Fixture, UID, pod, read};

fn away(fixture: &Fixture, is_away: bool) {
    fixture.table.is_away.store(is_away, Ordering::Relaxed);
}

#[tokio::test]
async fn a_pod_that_is_known_waits_neither_for_a_token_nor_for_the_apis_certificate() {
    let fixture = fixture(3600);
    let (pod, uid) = (pod(api_access(3600), None), PodUid::from(UID));
    away(&fixture, true);
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    let access = &places["access"];
    assert_eq!(read(access, "namespace"), "default");
    assert!(!access.join("token").exists() && !access.join("ca.crt").exists());
    let expected = "volume \"access\" lacks its token \"token\", configmap \"kube-root-ca.crt\": \
        the control plane has not been reached since the node agent started";
    assert_eq!(fixture.volumes.lacking(&uid).as_deref(), Some(expected));
    let due = Some(Duration::from_secs(30));
    assert_eq!(fixture.volumes.refresh_due(&uid), due);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(fixture.volumes.refresh_due(&uid), due, "still away");

    away(&fixture, false);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(read(access, "token"), "head.1.sign");
    assert_eq!(read(access, "ca.crt"), "-----BEGIN");
    assert_eq!(fixture.volumes.lacking(&uid), None);
    assert!(fixture.volumes.refresh_due(&uid) > due, "the token's time");
    fixture.tear_down().await;
}

#[tokio::test]
async fn an_agent_that_starts_without_a_control_plane_takes_nothing_from_a_running_pod() {
    let fixture = fixture(3600);
    let (pod, uid) = (pod(api_access(3600), None), PodUid::from(UID));
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    away(&fixture, true);
    let folders = Folders {
        root: fixture.dir.path().join("root"),
        logs: fixture.dir.path().join("logs"),
    };
    let table = Arc::clone(&fixture.table) as Arc<dyn ControlPlane>;
    let next = PodFolders::new(folders, table);
    next.set_up(&pod).await.unwrap();
    assert_eq!(read(&places["access"], "token"), "head.1.sign");
    assert_eq!(read(&places["access"], "ca.crt"), "-----BEGIN");
    assert_eq!(next.lacking(&uid), None);
    let due = Some(Duration::from_secs(30));
    assert_eq!(next.refresh_due(&uid), due, "they may have changed");
    next.tear_down(&uid, true).await.unwrap();
    assert_eq!(next.refresh_due(&uid), None);
    fixture.tear_down().await;
}

#[tokio::test]
async fn what_a_program_was_configured_with_is_waited_for() {
    let fixture = fixture(3600);
    away(&fixture, true);
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let ca = json!({"configMap": {"name": "kube-root-ca.crt"}});
    let map = json!({"configMap": {"name": "settings"}});
    let secret = json!({"secret": {"name": "key"}});
    for sources in [json!([token, map]), json!([token, secret]), json!([ca])] {
        let volume = json!([{"name": "v", "projected": {"sources": sources}}]);
        let error = fixture
            .volumes
            .set_up(&pod(volume, None))
            .await
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("cannot be reached"), "{sources}: {error}");
    }
    let plain = json!([{"name": "v", "configMap": {"name": "kube-root-ca.crt"}}]);
    fixture.volumes.set_up(&pod(plain, None)).await.unwrap_err();
    away(&fixture, false);
    fixture
        .table
        .put(RefKind::ConfigMap, "settings", &[("a", "b")]);
    let volume = json!([{"name": "v", "projected": {"sources": [token, map]}}]);
    let places = fixture.volumes.set_up(&pod(volume, None)).await.unwrap();
    assert_eq!(read(&places["v"], "a"), "b");
    fixture.tear_down().await;
}
