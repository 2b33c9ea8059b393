//! Whole journeys of pods on the fakes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMapEnvSource, EnvFromSource};
use swiftlet_model::control_plane::{ControlPlaneEvent, ObjectRef, RefKind};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind};

use crate::testing::runtime::Fault;
use crate::testing::stand::{Stand, pod};

#[tokio::test(start_paused = true)]
async fn a_pod_starts_in_the_shortest_order_and_is_published_once() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    assert_eq!(stand.phase("a").as_deref(), Some("Running"));
    let calls = stand.runtime.calls();
    let expected = [
        "run_sandbox 0",
        "sandbox_status s1",
        "create main 0",
        "start c2",
    ];
    assert_eq!(calls, expected);
    assert_eq!(stand.control_plane.told.lock().unwrap().statuses.len(), 1);
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.7"));
    let main = status.container_statuses.unwrap().remove(0);
    assert_eq!(main.container_id.as_deref(), Some("fakerd://c2"));
    assert_eq!(
        stand.control_plane.reasons(),
        ["Starting", "NodeReady", "Pulled", "Created", "Started"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_container_is_shown_at_once_restarted_and_then_backs_off() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let first = stand.runtime.container("main");
    stand.die("a", &first.id, 3).await;
    stand.turn(Duration::from_millis(1)).await;
    assert!(!stand.is_ready("a"));
    assert_eq!(stand.reason("a").as_deref(), Some("Error"));
    stand.seconds(1).await;
    assert!(stand.is_ready("a"), "the first restart is free");
    let second = stand.runtime.container("main");
    assert_eq!(second.attempt, 1);
    stand.die("a", &second.id, 3).await;
    stand.seconds(5).await;
    assert_eq!(stand.reason("a").as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(stand.phase("a").as_deref(), Some("Running"));
    stand.seconds(6).await;
    let third = stand.runtime.container("main");
    assert_eq!(third.attempt, 2);
    assert!(stand.is_ready("a"));
    let status = stand.control_plane.status("a").unwrap();
    let main = status.container_statuses.unwrap().remove(0);
    assert_eq!(main.restart_count, 2);
    assert_eq!(main.last_state.unwrap().terminated.unwrap().exit_code, 3);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_leaves_nothing_and_is_reported_gone_last() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
    let state = stand.runtime.state.lock().unwrap();
    assert!(state.sandboxes.is_empty() && state.containers.is_empty());
    assert!(
        state.calls.contains(&"stop c2 30".to_owned()),
        "{:?}",
        state.calls
    );
    drop(state);
    assert!(stand.node.is_clean(&"a".into()));
    assert_eq!(
        stand.phase("a").as_deref(),
        Some("Failed"),
        "143 is not success"
    );
    assert_eq!(stand.control_plane.told.lock().unwrap().gone.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_restarts_nothing_and_publishes_nothing() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let before = stand.control_plane.told.lock().unwrap().statuses.len();
    let starts = stand.runtime.state.lock().unwrap().starts;
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(60).await;
    assert_eq!(
        stand.control_plane.told.lock().unwrap().statuses.len(),
        before
    );
    let state = stand.runtime.state.lock().unwrap();
    assert_eq!((state.starts, state.sandboxes.len()), (starts, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_goes_on_over_a_restart_of_the_agent() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    for _ in 0..2 {
        stand.seconds(1).await;
        stand.die("a", &stand.runtime.container("main").id, 1).await;
    }
    stand.seconds(2).await;
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(5).await;
    assert_eq!(
        stand.runtime.container("main").attempt,
        1,
        "seven of ten seconds"
    );
    assert_eq!(stand.reason("a").as_deref(), Some("CrashLoopBackOff"));
    stand.seconds(5).await;
    assert_eq!(stand.runtime.container("main").attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_it_starts_never_starts_a_container() {
    for delay_ms in [0, 2, 5, 12, 15, 22, 25] {
        let stand = Stand::new().await;
        let pod = pod("a");
        stand.upsert(&pod).await;
        stand.turn(Duration::from_millis(delay_ms)).await;
        stand.delete(&pod, 30).await;
        stand.turn(Duration::from_millis(1)).await;
        let starting = stand.runtime.state.lock().unwrap().starts;
        stand.seconds(5).await;
        let state = stand.runtime.state.lock().unwrap();
        assert!(
            state.starts <= starting.max(usize::from(delay_ms > 20)),
            "{delay_ms} ms"
        );
        assert!(
            state.sandboxes.is_empty() && state.containers.is_empty(),
            "{delay_ms} ms"
        );
        drop(state);
        assert!(stand.control_plane.is_gone("a"), "{delay_ms} ms");
        assert!(stand.node.is_clean(&"a".into()), "{delay_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_answer_was_lost_is_adopted() {
    let stand = Stand::new().await;
    let faults = [Some(Fault::TimeoutAfterEffect)];
    stand.runtime.state.lock().unwrap().faults.extend(faults);
    stand.upsert(&pod("a")).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    let state = stand.runtime.state.lock().unwrap();
    assert_eq!(state.sandboxes.len(), 1);
    assert_eq!(state.sandboxes[0].attempt, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_starts_once_the_runtime_is_back() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().down = true;
    stand.upsert(&pod("a")).await;
    stand.seconds(60).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Pending"));
    stand.runtime.state.lock().unwrap().down = false;
    stand.seconds(21).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn a_status_is_repeated_until_the_control_plane_has_it() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    stand.control_plane.told.lock().unwrap().connected = false;
    stand.seconds(30).await;
    assert!(!stand.is_ready("a"));
    stand.control_plane.told.lock().unwrap().connected = true;
    stand.list(&[&pod]).await;
    stand.turn(Duration::from_millis(5)).await;
    assert!(
        stand.is_ready("a"),
        "a new connection does not wait for the back-off"
    );
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_succeeds_and_stays_so_over_a_restart() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.die("a", &stand.runtime.container("main").id, 0).await;
    stand.seconds(1).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Succeeded"));
    assert!(stand.node.is_clean(&"a".into()));
    let before = stand.control_plane.told.lock().unwrap().statuses.len();
    let stand = stand.restart().await;
    // Its records are lost in between.
    stand.runtime.state.lock().unwrap().containers.clear();
    stand.list(&[&pod]).await;
    stand.seconds(30).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Succeeded"));
    assert_eq!(
        stand.control_plane.told.lock().unwrap().statuses.len(),
        before
    );
    assert_eq!(stand.runtime.state.lock().unwrap().starts, 1);
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
    assert!(stand.runtime.state.lock().unwrap().sandboxes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanishes_is_ended_without_a_word() {
    let stand = Stand::new().await;
    let pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let before = stand.control_plane.told.lock().unwrap().statuses.len();
    stand.list(&[]).await;
    stand.seconds(5).await;
    assert!(stand.runtime.state.lock().unwrap().sandboxes.is_empty());
    assert!(stand.node.is_clean(&"a".into()));
    assert!(!stand.control_plane.is_gone("a"));
    assert_eq!(
        stand.control_plane.told.lock().unwrap().statuses.len(),
        before
    );
}

#[tokio::test(start_paused = true)]
async fn what_nobody_wants_is_ended_but_only_after_the_first_full_list() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let stand = stand.restart().await;
    stand.node.volumes.lock().unwrap().insert("stray".into());
    stand.seconds(60).await;
    assert_eq!(stand.runtime.state.lock().unwrap().sandboxes.len(), 1);
    stand.list(&[]).await;
    stand.seconds(30).await;
    assert!(stand.runtime.state.lock().unwrap().sandboxes.is_empty());
    assert!(stand.node.is_clean(&"a".into()) && stand.node.is_clean(&"stray".into()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_fails_with_the_reason_and_can_be_deleted() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().host_users = Some(false);
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert!(status.message.unwrap().contains("spec.hostUsers"));
    stand.delete(&pod, 0).await;
    stand.seconds(1).await;
    assert!(stand.control_plane.is_gone("a"));
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(stand.runtime.state.lock().unwrap().starts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_fails_backs_off_and_is_tried_again() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().containers[0].image = Some("registry.local/none:1".into());
    stand.runtime.state.lock().unwrap().pull_fails = true;
    stand.upsert(&pod).await;
    stand.seconds(5).await;
    assert_eq!(stand.reason("a").as_deref(), Some("ImagePullBackOff"));
    stand.runtime.state.lock().unwrap().pull_fails = false;
    stand.seconds(30).await;
    assert!(stand.is_ready("a"));
    let reasons = stand.control_plane.reasons();
    for reason in ["Pulling", "Failed", "BackOff", "Pulled", "Started"] {
        assert!(
            reasons.iter().any(|one| one == reason),
            "{reason} in {reasons:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_waits_for_the_config_map_that_it_names() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    let source = ConfigMapEnvSource {
        name: "cfg".into(),
        optional: None,
    };
    let from = EnvFromSource {
        config_map_ref: Some(source),
        ..EnvFromSource::default()
    };
    pod.spec.as_mut().unwrap().containers[0].env_from = Some(vec![from]);
    stand.upsert(&pod).await;
    stand.seconds(100).await;
    assert_eq!(
        stand.reason("a").as_deref(),
        Some("CreateContainerConfigError")
    );
    let status = stand
        .control_plane
        .status("a")
        .unwrap()
        .container_statuses
        .unwrap()
        .remove(0);
    let waiting = status.state.unwrap().waiting.unwrap();
    assert_eq!(
        waiting.message.as_deref(),
        Some("configmap \"cfg\" not found")
    );
    let kind = RefKind::ConfigMap;
    let object = ObjectRef {
        kind,
        namespace: "default".into(),
        name: "cfg".into(),
    };
    let data = Arc::new([("K".to_owned(), b"v".to_vec())].into());
    stand
        .control_plane
        .told
        .lock()
        .unwrap()
        .referenced
        .insert(object.clone(), data);
    stand.send(ControlPlaneEvent::Referenced(object)).await;
    stand.turn(Duration::from_millis(50)).await;
    assert!(stand.is_ready("a"), "it does not wait for the back-off");
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_is_made_good_by_asking_the_runtime() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let first = stand.runtime.container("main");
    assert!(stand.runtime.kill(&first.id, 9));
    stand.hint("a", LifecycleKind::Changed).await;
    stand.seconds(1).await;
    assert_eq!(stand.runtime.container("main").attempt, 1);
    let status = stand
        .control_plane
        .status("a")
        .unwrap()
        .container_statuses
        .unwrap()
        .remove(0);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 9);
}

#[tokio::test(start_paused = true)]
async fn a_hint_about_an_older_container_changes_nothing() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let first = stand.runtime.container("main").id;
    stand.die("a", &first, 1).await;
    stand.seconds(1).await;
    let before = stand.control_plane.told.lock().unwrap().statuses.len();
    let exit = Some(KernelExit {
        code: 5,
        signal: 0,
        oom_killed: false,
    });
    stand
        .hint(
            "a",
            LifecycleKind::ContainerDied {
                container: first,
                exit,
            },
        )
        .await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    assert_eq!(
        stand.control_plane.told.lock().unwrap().statuses.len(),
        before
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_image_restarts_the_container_alone() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .images
        .push("busybox:2".into());
    pod.spec.as_mut().unwrap().containers[0].image = Some("busybox:2".into());
    stand.upsert(&pod).await;
    stand.seconds(15).await;
    let main = stand.runtime.container("main");
    assert_eq!((main.attempt, main.image.as_str()), (1, "busybox:2"));
    assert_eq!(stand.runtime.state.lock().unwrap().sandboxes.len(), 1);
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_replaced_with_the_next_attempt() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let log = |name: &str| PathBuf::from(format!("/logs/default_a_a/main/{name}"));
    {
        let mut files = stand.node.log_files.files.lock().unwrap();
        files.insert(log("0.log"), 1);
        files.insert(log("0.log.20240102-150405"), 1);
        files.insert(log("1.log"), 1);
    }
    let sandbox = stand.runtime.container("main").sandbox;
    let container = ContainerId::from(sandbox.as_str());
    // As long as the runtime cannot remove them, what they logged can be asked for.
    stand.runtime.state.lock().unwrap().removal_fails = true;
    stand
        .hint(
            "a",
            LifecycleKind::ContainerDied {
                container,
                exit: None,
            },
        )
        .await;
    stand.seconds(30).await;
    assert_eq!(stand.node.log_files.names().len(), 3);
    stand.runtime.state.lock().unwrap().removal_fails = false;
    stand.seconds(300).await;
    assert!(stand.is_ready("a"));
    let state = stand.runtime.state.lock().unwrap();
    assert_eq!(state.sandboxes.len(), 1);
    assert_eq!(state.sandboxes[0].attempt, 1);
    // What the containers of the old one logged went with them.
    assert_eq!(stand.node.log_files.names(), ["1.log"]);
}
