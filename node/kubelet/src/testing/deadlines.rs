//! Pods whose time is over, and containers that join later.

use k8s_openapi::api::core::v1::EphemeralContainer;
use swiftlet_model::runtime::ContainerState;

use crate::testing::stand::{Stand, pod};

#[tokio::test(start_paused = true)]
async fn a_pod_fails_when_its_active_deadline_is_over_even_after_a_restart_of_the_agent() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    stand.upsert(&pod).await;
    stand.seconds(30).await;
    assert!(stand.is_ready("a"));
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(28).await;
    assert!(stand.is_ready("a"));
    stand.seconds(3).await;
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.message.as_deref(), Some(message));
    assert!(
        stand
            .control_plane
            .reasons()
            .contains(&"DeadlineExceeded".to_owned())
    );
    // It stays so, whatever comes.
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(30).await;
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(stand.runtime.state.lock().unwrap().starts, 1);
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_joins_a_running_pod_and_is_never_restarted() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let debug = EphemeralContainer {
        name: "debug".into(),
        image: Some("busybox".into()),
        image_pull_policy: Some("IfNotPresent".into()),
        target_container_name: Some("main".into()),
        ..EphemeralContainer::default()
    };
    pod.spec.as_mut().unwrap().ephemeral_containers = Some(vec![debug]);
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let debug = stand.runtime.container("debug");
    assert_eq!(debug.state, ContainerState::Running);
    let shown = || {
        let status = stand.control_plane.status("a").unwrap();
        status
            .ephemeral_container_statuses
            .unwrap()
            .remove(0)
            .state
            .unwrap()
    };
    assert!(shown().running.is_some());
    stand.die("a", &debug.id, 1).await;
    stand.seconds(30).await;
    assert!(stand.is_ready("a"));
    assert_eq!(shown().terminated.unwrap().exit_code, 1);
    assert_eq!(stand.runtime.state.lock().unwrap().starts, 2);
    // Not even when nothing but the API remembers it.
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .containers
        .retain(|one| one.name.as_str() != "debug");
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(30).await;
    assert_eq!(stand.runtime.state.lock().unwrap().starts, 2);
}
