//! A worker acts when there is something to do, and sleeps when there is not; what hangs holds only
//! what it must.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMapEnvSource, EnvFromSource, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use swiftlet_model::control_plane::{ControlPlaneEvent, ObjectRef, RefKind};
use swiftlet_model::lifecycle::LifecycleKind;

use crate::testing::stand::{Stand, pod};

fn settings() -> ObjectRef {
    ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "default".into(),
        name: "cfg".into(),
    }
}

fn with_environment(uid: &str) -> Pod {
    let mut pod = pod(uid);
    let source = ConfigMapEnvSource {
        name: "cfg".into(),
        optional: Some(true),
    };
    let from = EnvFromSource {
        config_map_ref: Some(source),
        ..EnvFromSource::default()
    };
    pod.spec.as_mut().unwrap().containers[0].env_from = Some(vec![from]);
    pod
}

fn with_memory(uid: &str, memory: &str) -> Pod {
    let mut pod = pod(uid);
    let list = [("memory".to_owned(), Quantity(memory.to_owned()))];
    pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
        requests: Some(list.clone().into()),
        limits: Some(list.into()),
        ..ResourceRequirements::default()
    });
    pod
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_after_a_resize_that_failed_lets_its_worker_sleep() {
    let stand = Stand::new().await;
    stand.upsert(&with_memory("a", "100Mi")).await;
    stand.seconds(2).await;
    let id = stand.runtime.container("main").id.to_string();
    let used = [(id, 90 << 20)].into();
    let stats = &stand.node.stats;
    stats
        .container_memory
        .lock()
        .unwrap()
        .insert("a".into(), used);
    let smaller = with_memory("a", "50Mi");
    stand.upsert(&smaller).await;
    stand.seconds(2).await;
    let takes = Duration::from_secs(50);
    let state = &stand.runtime.state;
    state
        .lock()
        .unwrap()
        .stop_takes
        .insert("main".into(), takes);
    stand.delete(&smaller, 60).await;
    stand.seconds(15).await;
    let before = stand.clock.looks.load(Ordering::Relaxed);
    stand.seconds(30).await;
    let looks = stand.clock.looks.load(Ordering::Relaxed) - before;
    assert!(looks < 1000, "{looks} looks at the clock in half a minute");
    stand.seconds(15).await;
    assert!(stand.control_plane.is_gone("a"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_hangs_does_not_keep_the_sandbox_of_a_pod_that_ends() {
    for begins_hung in [true, false] {
        let stand = Stand::new().await;
        let pod = pod("a");
        *stand.node.volumes_hang.lock().unwrap() = begins_hung;
        stand.upsert(&pod).await;
        stand.seconds(2).await;
        *stand.node.volumes_hang.lock().unwrap() = true;
        let mut labelled = pod.clone();
        labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        stand.upsert(&labelled).await;
        stand.send(ControlPlaneEvent::Referenced(settings())).await;
        stand.seconds(1).await;
        stand.delete(&labelled, 1).await;
        stand.seconds(5).await;
        let calls = stand.runtime.calls();
        let stopped = calls.iter().any(|call| call.starts_with("stop_sandbox"));
        assert!(stopped, "{calls:?}");
        assert!(!begins_hung || !stand.control_plane.is_gone("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_cpus_no_disk_remembers_says_so_and_can_be_deleted() {
    let stand = Stand::with_static_cpus().await;
    stand.seconds(1).await;
    *stand.node.checkpoints.full.lock().unwrap() = true;
    let mut pod = with_memory("a", "100Mi");
    let cpu = ("cpu".to_owned(), Quantity("1".to_owned()));
    let resources = pod.spec.as_mut().unwrap().containers[0].resources.as_mut();
    let resources = resources.unwrap();
    for list in [&mut resources.requests, &mut resources.limits] {
        list.as_mut().unwrap().extend([cpu.clone()]);
    }
    stand.upsert(&pod).await;
    stand.seconds(20).await;
    assert!(!stand.is_ready("a"));
    let told = stand.control_plane.told.lock().unwrap().events.clone();
    let told: Vec<_> = told.iter().filter_map(|one| one.message.clone()).collect();
    let said = told
        .iter()
        .filter(|text| text.contains("CPUs that the container gets"));
    assert_eq!(said.count(), 1, "{told:?}");
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_started_says_so_and_then_waits() {
    let stand = Stand::new().await;
    let fail = |names| stand.runtime.state.lock().unwrap().starts_fail = names;
    fail(vec!["main".to_owned()]);
    stand.upsert(&pod("a")).await;
    let mut reasons = Vec::new();
    for _ in 0..300 {
        stand.turn(Duration::from_millis(10)).await;
        reasons.extend(stand.reason("a"));
    }
    reasons.dedup();
    assert_eq!(
        reasons.iter().rev().take(2).rev().collect::<Vec<_>>(),
        ["RunContainerError", "CrashLoopBackOff"],
        "{reasons:?}"
    );
    let status = stand.control_plane.status("a").unwrap();
    let container = status.container_statuses.unwrap().remove(0);
    let last = container.last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 128);
    // It can be started after all.
    fail(Vec::new());
    stand.seconds(15).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_for_good_is_shown_as_an_end() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some("Never".into());
    let mut other = spec.containers[0].clone();
    other.name = "other".into();
    spec.containers.push(other);
    stand.runtime.state.lock().unwrap().starts_fail = vec!["main".to_owned()];
    stand.upsert(&pod).await;
    stand.seconds(2).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Running"));
    assert_eq!(stand.reason("a").as_deref(), Some("Error"));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_waits_for_its_runtime_class_is_made_when_there_is_one() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().runtime_class_name = Some("late".into());
    stand.upsert(&pod).await;
    stand.seconds(65).await;
    let class = ObjectRef {
        kind: RefKind::RuntimeClass,
        namespace: String::new(),
        name: "late".into(),
    };
    let json = br#"{"metadata":{"name":"late"},"handler":"runc"}"#;
    let objects = &stand.control_plane.told;
    let bytes = bytes::Bytes::from_static(json);
    objects.lock().unwrap().objects.insert(class.clone(), bytes);
    stand.send(ControlPlaneEvent::Referenced(class)).await;
    stand.turn(Duration::from_millis(500)).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_make_a_rejected_pod_run() {
    let stand = Stand::new().await;
    stand.upsert(&with_memory("a", "100Gi")).await;
    stand.seconds(1).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Failed"));
    stand.runtime.state.lock().unwrap().panics = true;
    stand.hint("a", LifecycleKind::Changed).await;
    stand.turn(Duration::from_millis(500)).await;
    stand.runtime.state.lock().unwrap().panics = false;
    stand.seconds(10).await;
    assert!(stand.runtime.state.lock().unwrap().sandboxes.is_empty());
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
}

#[tokio::test(start_paused = true)]
async fn what_a_container_is_told_is_looked_up_while_its_sandbox_is_made() {
    let stand = Stand::new().await;
    let pod = with_environment("a");
    let asked = || stand.control_plane.told.lock().unwrap().asked.len();
    stand.upsert(&pod).await;
    stand.turn(Duration::from_millis(5)).await;
    let made = |name: &str| {
        let calls = stand.runtime.calls();
        calls.iter().any(|call| call.starts_with(name))
    };
    assert_eq!((asked(), made("run_sandbox")), (1, false));
    // It changes before the sandbox is there: the container gets what holds then.
    stand.send(ControlPlaneEvent::Referenced(settings())).await;
    stand.turn(Duration::from_millis(4)).await;
    assert_eq!((asked(), made("run_sandbox")), (2, false));
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    assert_eq!(asked(), 2, "nothing is asked for twice");
}
