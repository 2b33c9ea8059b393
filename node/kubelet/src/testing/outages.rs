//! What is lost, late or away for a while, and is made good.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::api::core::v1::{ConfigMapEnvSource, ConfigMapVolumeSource, EnvFromSource, Pod};
use swiftlet_model::control_plane::{ControlPlaneEvent, ObjectRef, RefKind};
use swiftlet_model::lifecycle::LifecycleKind;

use crate::testing::stand::{Stand, pod};

/// The object that the pods of these tests name.
fn settings() -> ObjectRef {
    ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "default".into(),
        name: "cfg".into(),
    }
}

fn pod_with_environment(uid: &str) -> Pod {
    let mut pod = pod(uid);
    let source = ConfigMapEnvSource {
        name: "cfg".into(),
        optional: None,
    };
    let from = EnvFromSource {
        config_map_ref: Some(source),
        ..EnvFromSource::default()
    };
    pod.spec.as_mut().unwrap().containers[0].env_from = Some(vec![from]);
    pod
}

fn pod_with_volume(uid: &str) -> Pod {
    let mut pod = pod(uid);
    let source = ConfigMapVolumeSource {
        name: "cfg".into(),
        ..ConfigMapVolumeSource::default()
    };
    let volume = Volume {
        name: "config".into(),
        config_map: Some(source),
        ..Volume::default()
    };
    pod.spec.as_mut().unwrap().volumes = Some(vec![volume]);
    pod
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_gets_new_data_after_a_restart_of_the_agent() {
    let stand = Stand::new().await;
    let pod = pod_with_volume("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(1).await;
    let before = *stand.node.refreshes.lock().unwrap();
    stand.send(ControlPlaneEvent::Referenced(settings())).await;
    stand.seconds(1).await;
    assert_eq!(*stand.node.refreshes.lock().unwrap(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn pods_deleted_while_they_pull_leave_room_for_other_pulls() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_hangs = true;
    let pull = |uid: &str| {
        let mut pod = pod(uid);
        let image = Some(format!("registry.local/{uid}:1"));
        pod.spec.as_mut().unwrap().containers[0].image = image;
        pod
    };
    let hanging: Vec<_> = ["a", "b", "c", "d", "e"].map(pull).into();
    for pod in &hanging {
        stand.upsert(pod).await;
    }
    stand.seconds(1).await;
    for pod in &hanging {
        stand.delete(pod, 0).await;
    }
    stand.seconds(5).await;
    stand.runtime.state.lock().unwrap().pull_hangs = false;
    stand.upsert(&pull("f")).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("f"));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_always_pulled_is_pulled_for_each_start() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().containers[0].image_pull_policy = Some("Always".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.die("a", &stand.runtime.container("main").id, 1).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    let calls = stand.runtime.calls();
    let pulls = calls.iter().filter(|call| call.starts_with("pull "));
    assert_eq!(pulls.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_whose_data_nobody_tells_keep_no_other_from_starting_and_can_be_deleted() {
    let stand = Stand::new().await;
    stand.control_plane.told.lock().unwrap().silent = true;
    let waiting = ["a", "b", "c", "d", "e", "f", "g", "h"].map(pod_with_environment);
    for pod in &waiting {
        stand.upsert(pod).await;
    }
    stand.seconds(1).await;
    stand.upsert(&pod("z")).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("z"));
    stand.delete(&waiting[0], 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_ends_the_wait_for_data() {
    let stand = Stand::new().await;
    let pod = pod_with_environment("a");
    stand.upsert(&pod).await;
    stand.seconds(100).await;
    assert!(!stand.is_ready("a"));
    let data = Arc::new([("K".to_owned(), b"v".to_vec())].into());
    let told = &stand.control_plane.told;
    told.lock().unwrap().referenced.insert(settings(), data);
    stand.list(&[&pod]).await;
    stand.turn(Duration::from_millis(50)).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_runtime_answers_is_not_missed() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    stand.hint("a", LifecycleKind::Changed).await;
    // The runtime has looked, but its answer is on its way.
    stand.turn(Duration::from_millis(15)).await;
    let first = stand.runtime.container("main");
    assert!(stand.runtime.kill(&first.id, 9));
    stand.hint("a", LifecycleKind::Changed).await;
    stand.seconds(1).await;
    assert_eq!(stand.runtime.container("main").attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_death_of_an_unknown_container_makes_the_worker_ask() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let container = "c99".into();
    let exit = None;
    let died = LifecycleKind::ContainerDied { container, exit };
    stand.hint("a", died).await;
    stand.seconds(1).await;
    let calls = stand.runtime.calls();
    assert_eq!(calls.iter().filter(|call| *call == "pod").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_is_started_anew_but_not_all_the_time() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    stand.runtime.state.lock().unwrap().panics = true;
    stand.hint("a", LifecycleKind::Changed).await;
    stand.seconds(10).await;
    let calls = stand.runtime.calls();
    let tries = calls.iter().filter(|call| *call == "pod").count();
    assert!((5..=11).contains(&tries), "{tries}");
    stand.runtime.state.lock().unwrap().panics = false;
    stand.seconds(2).await;
    stand.die("a", &stand.runtime.container("main").id, 1).await;
    stand.seconds(2).await;
    assert_eq!(stand.runtime.container("main").attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn the_logs_of_a_completed_pod_stay_until_it_is_deleted() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.die("a", &stand.runtime.container("main").id, 0).await;
    stand.seconds(5).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Succeeded"));
    assert!(stand.node.is_clean(&"a".into()));
    assert!(!stand.node.logs.lock().unwrap().is_empty());
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
    assert!(stand.node.logs.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_back_is_used_at_once() {
    let stand = Stand::new().await;
    stand.seconds(1).await;
    stand.runtime.state.lock().unwrap().down = true;
    stand.upsert(&pod("a")).await;
    stand.seconds(100).await;
    stand.runtime.state.lock().unwrap().down = false;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_hears_of_the_node_at_once() {
    let stand = Stand::new().await;
    stand.seconds(1).await;
    let counts = || {
        let told = stand.control_plane.told.lock().unwrap();
        (told.nodes.len(), told.leases)
    };
    let before = counts();
    stand.list(&[]).await;
    stand.turn(Duration::from_millis(5)).await;
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_does_not_shorten_the_time_for_a_sandbox() {
    let stand = Stand::new().await;
    for uid in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        stand.upsert(&pod(uid)).await;
    }
    stand.seconds(1).await;
    let limits = stand.runtime.state.lock().unwrap().sandbox_limits.clone();
    assert_eq!(limits, [crate::SANDBOX_LIMIT; 9]);
}
