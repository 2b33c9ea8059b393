//! What containers mount, and when volumes are brought up to date.

use std::time::Duration;

use serde_json::json;
use swiftlet_model::control_plane::{ControlPlaneEvent, ObjectRef, RefKind};
use swiftlet_model::ids::PodUid;

use crate::testing::stand::{Stand, pod};

fn refreshes(stand: &Stand) -> usize {
    *stand.node.refreshes.lock().unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_container_starts_before_its_table_of_hosts_is_written() {
    let stand = Stand::new().await;
    *stand.node.hosts_failures.lock().unwrap() = 4;
    stand.upsert(&pod("a")).await;
    stand.turn(Duration::from_millis(500)).await;
    let calls = stand.runtime.calls();
    assert!(calls.contains(&"create main 0".to_owned()), "{calls:?}");
    assert!(!calls.contains(&"start c2".to_owned()), "{calls:?}");
    assert!(
        stand
            .control_plane
            .reasons()
            .contains(&"FailedMount".to_owned())
    );
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    let hosts = stand.node.hosts.lock().unwrap();
    let text = &hosts[&PodUid::from("a")];
    assert!(
        text.ends_with("fe00::2\tip6-allrouters\n10.1.0.7\ta\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_mounts_parts_hosts_and_last_words() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "x"}}]);
    spec.volumes = serde_json::from_value(volumes).unwrap();
    let mounts = json!([
        {"name": "v", "mountPath": "/data", "subPathExpr": "of/$(NAME)"},
        {"name": "c", "mountPath": "/conf"},
    ]);
    let main = &mut spec.containers[0];
    main.volume_mounts = serde_json::from_value(mounts).unwrap();
    main.env = serde_json::from_value(json!([{"name": "NAME", "value": "me"}])).unwrap();
    main.termination_message_path = Some("/dev/termination-log".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    let state = stand.runtime.state.lock().unwrap();
    let mounts = state.mounts["main"].iter();
    let mounts: Vec<_> = mounts
        .map(|one| {
            (
                one.container_path.as_str(),
                one.host_path.to_str().unwrap(),
                one.read_only,
            )
        })
        .collect();
    let expected = [
        ("/conf", "/volumes/c", true),
        ("/data", "/pods/a/sub/v/of/me", false),
        ("/dev/termination-log", "/pods/a/containers/main/0", false),
        ("/etc/hosts", "/pods/a/etc-hosts", false),
    ];
    assert_eq!(mounts, expected);
}

#[tokio::test(start_paused = true)]
async fn a_variable_without_a_value_in_a_path_is_an_error_of_the_configuration() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    spec.volumes = serde_json::from_value(json!([{"name": "v", "emptyDir": {}}])).unwrap();
    let mounts = json!([{"name": "v", "mountPath": "/data", "subPathExpr": "$(NOT)"}]);
    spec.containers[0].volume_mounts = serde_json::from_value(mounts).unwrap();
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert_eq!(
        stand.reason("a").as_deref(),
        Some("CreateContainerConfigError")
    );
}

#[tokio::test(start_paused = true)]
async fn volumes_follow_their_tokens_and_what_is_written_about_the_pod() {
    let stand = Stand::new().await;
    let due = Duration::from_mins(8);
    *stand.node.refresh_due.lock().unwrap() = Some(due);
    let mut pod = pod("a");
    let volumes = json!([{"name": "about", "projected": {"sources": [
        {"downwardAPI": {"items": [
            {"path": "x", "fieldRef": {"fieldPath": "metadata.annotations"}},
        ]}},
        {"configMap": {"name": "root-ca"}},
    ]}}]);
    pod.spec.as_mut().unwrap().volumes = serde_json::from_value(volumes).unwrap();
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    assert_eq!(refreshes(&stand), 0);
    stand.turn(due).await;
    assert_eq!(refreshes(&stand), 1);

    pod.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    stand.upsert(&pod).await;
    stand.turn(Duration::from_millis(10)).await;
    assert_eq!(refreshes(&stand), 2);

    let object = ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "default".into(),
        name: "root-ca".into(),
    };
    stand.send(ControlPlaneEvent::Referenced(object)).await;
    stand.turn(Duration::from_millis(10)).await;
    assert_eq!(refreshes(&stand), 3);
    // Each time the clock of the tokens begins anew.
    stand.turn(due.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(refreshes(&stand), 3);
    stand.seconds(2).await;
    assert_eq!(refreshes(&stand), 4);
}
