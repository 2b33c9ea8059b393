//! Journeys of pods with sidecars, hooks, probes, deadlines and ephemeral containers.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ExecAction, Lifecycle, LifecycleHandler, Pod, Probe, SleepAction,
};
use swiftlet_model::runtime::{ContainerState, ExecOutput};

use crate::testing::stand::{Stand, pod};

fn container(name: &str, policy: Option<&str>) -> Container {
    Container {
        name: name.into(),
        image: Some("busybox".into()),
        image_pull_policy: Some("IfNotPresent".into()),
        restart_policy: policy.map(str::to_owned),
        ..Container::default()
    }
}

/// A pod with the sidecars `first` and `second` and an init container `once` between them.
fn with_sidecars(policy: &str) -> Pod {
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some(policy.into());
    spec.init_containers = Some(vec![
        container("first", Some("Always")),
        container("once", None),
        container("second", Some("Always")),
    ]);
    pod
}

fn exec(word: &str) -> LifecycleHandler {
    LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(vec![word.to_owned()]),
        }),
        ..LifecycleHandler::default()
    }
}

fn sleep(seconds: i64) -> LifecycleHandler {
    LifecycleHandler {
        sleep: Some(SleepAction { seconds }),
        ..LifecycleHandler::default()
    }
}

fn with_hooks(post: Option<LifecycleHandler>, pre: Option<LifecycleHandler>) -> Pod {
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().containers[0].lifecycle = Some(Lifecycle {
        post_start: post,
        pre_stop: pre,
        ..Lifecycle::default()
    });
    pod
}

/// Calls of the runtime with these first words, with names in place of ids.
fn calls(stand: &Stand, words: &[&str]) -> Vec<String> {
    let state = stand.runtime.state.lock().unwrap();
    let name = |id: &str| {
        let found = state.containers.iter().find(|one| one.id.as_str() == id);
        found.map_or_else(|| id.to_owned(), |one| one.name.to_string())
    };
    let all = state.calls.iter().filter_map(|call| {
        let (first, rest) = call.split_once(' ')?;
        let (id, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let text = format!("{first} {} {rest}", name(id));
        words.contains(&first).then(|| text.trim_end().to_owned())
    });
    all.collect()
}

async fn start_all(stand: &Stand, pod: &Pod) {
    stand.upsert(pod).await;
    stand.seconds(1).await;
    stand.die("a", &stand.runtime.container("once").id, 0).await;
    stand.seconds(1).await;
}

#[tokio::test(start_paused = true)]
async fn sidecars_start_before_and_stop_after_the_main_containers_in_reverse() {
    let stand = Stand::new().await;
    let pod = with_sidecars("Always");
    start_all(&stand, &pod).await;
    assert_eq!(
        calls(&stand, &["start"]),
        ["start first", "start once", "start second", "start main"]
    );
    assert!(stand.is_ready("a"));
    let takes = [("main", 5), ("second", 4), ("first", 3)];
    let takes = takes.map(|(name, seconds)| (name.to_owned(), Duration::from_secs(seconds)));
    stand.runtime.state.lock().unwrap().stop_takes.extend(takes);
    stand.delete(&pod, 30).await;
    stand.seconds(11).await;
    assert_eq!(calls(&stand, &["stop"]), ["stop main 30", "stop second 24"]);
    stand.seconds(5).await;
    assert!(stand.control_plane.is_gone("a"));
    let stops = calls(&stand, &["stop"]);
    assert!(
        stops[2].ends_with(" 20"),
        "what is left of the grace period: {stops:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn sidecars_are_stopped_at_once_when_the_grace_period_is_over() {
    let stand = Stand::new().await;
    let pod = with_sidecars("Always");
    start_all(&stand, &pod).await;
    let hangs = ["main", "second", "first"].map(|name| (name.to_owned(), Duration::from_secs(99)));
    stand.runtime.state.lock().unwrap().stop_takes.extend(hangs);
    stand.delete(&pod, 10).await;
    stand.seconds(9).await;
    assert!(
        stand
            .runtime
            .state
            .lock()
            .unwrap()
            .moments
            .iter()
            .all(|one| { one.stop.is_none() || one.name == "main" })
    );
    stand.seconds(4).await;
    assert!(
        stand.control_plane.is_gone("a"),
        "two seconds for each, at the same time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_main_container_is_done_succeeds_once_its_sidecars_are_stopped() {
    let stand = Stand::new().await;
    let pod = with_sidecars("Never");
    start_all(&stand, &pod).await;
    // A sidecar of a pod that never restarts comes back all the same.
    stand
        .die("a", &stand.runtime.container("first").id, 1)
        .await;
    stand.seconds(1).await;
    let first = stand.runtime.container("first");
    assert_eq!((first.attempt, first.state), (1, ContainerState::Running));
    let takes = ("second".to_owned(), Duration::from_secs(5));
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .stop_takes
        .extend([takes]);
    stand.die("a", &stand.runtime.container("main").id, 0).await;
    stand.seconds(3).await;
    assert_eq!(
        stand.phase("a").as_deref(),
        Some("Running"),
        "sidecars still run"
    );
    stand.seconds(5).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Succeeded"));
    let stops = calls(&stand, &["stop"]);
    assert_eq!(stops, ["stop second 30", "stop first 24"]);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_not_shown_as_running_before_its_post_start_hook_is_over() {
    let stand = Stand::new().await;
    let pod = with_hooks(Some(exec("warm-up")), None);
    stand.runtime.state.lock().unwrap().exec_takes = Duration::from_secs(20);
    stand.upsert(&pod).await;
    stand.seconds(10).await;
    assert_eq!(calls(&stand, &["exec"]), ["exec main warm-up"]);
    assert_eq!(stand.reason("a").as_deref(), Some("ContainerCreating"));
    assert_eq!(stand.phase("a").as_deref(), Some("Pending"));
    stand.seconds(11).await;
    assert!(stand.is_ready("a"));
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(10).await;
    assert!(stand.is_ready("a"));
    assert_eq!(calls(&stand, &["exec"]).len(), 1, "it does not run again");
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_post_start_hook_fails_is_killed_and_restarted_with_back_off() {
    let stand = Stand::new().await;
    let failed = ExecOutput {
        exit_code: 7,
        ..ExecOutput::default()
    };
    let answers = [Ok(failed.clone()), Ok(failed)];
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .exec_answers
        .extend(answers);
    stand.upsert(&with_hooks(Some(exec("warm-up")), None)).await;
    stand.seconds(5).await;
    let reasons = stand.control_plane.reasons();
    for reason in ["Started", "FailedPostStartHook", "Killing", "BackOff"] {
        assert!(
            reasons.iter().any(|one| one == reason),
            "{reason} in {reasons:?}"
        );
    }
    assert_eq!(stand.reason("a").as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(stand.runtime.container("main").attempt, 1);
    stand.seconds(10).await;
    assert!(stand.is_ready("a"), "the third time it works");
}

#[tokio::test(start_paused = true)]
async fn a_failed_post_start_hook_is_told_in_the_status() {
    let stand = Stand::new().await;
    let mut pod = with_hooks(Some(exec("warm-up")), None);
    pod.spec
        .as_mut()
        .unwrap()
        .containers
        .push(container("other", None));
    let failed = ExecOutput {
        exit_code: 7,
        ..ExecOutput::default()
    };
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .exec_answers
        .push_back(Ok(failed));
    let takes = ("main".to_owned(), Duration::from_secs(5));
    stand
        .runtime
        .state
        .lock()
        .unwrap()
        .stop_takes
        .extend([takes]);
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert!(
        stand
            .control_plane
            .reasons()
            .contains(&"FailedPostStartHook".to_owned())
    );
    // The one behind it does not wait any longer.
    assert_eq!(
        stand.runtime.container("other").state,
        ContainerState::Running
    );
    let told = |stand: &Stand| {
        let told = stand.control_plane.told.lock().unwrap();
        told.statuses.iter().any(|(_, status)| {
            let mut all = status.container_statuses.iter().flatten();
            all.any(|one| {
                let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
                waiting.and_then(|one| one.reason.as_deref()) == Some("PostStartHookError")
            })
        })
    };
    stand.runtime.state.lock().unwrap().down = false;
    stand.seconds(10).await;
    assert!(told(&stand));
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_comes_before_sigterm_and_counts_against_the_grace_period() {
    let stand = Stand::new().await;
    let pod = with_hooks(None, Some(exec("drain")));
    stand.runtime.state.lock().unwrap().exec_takes = Duration::from_secs(8);
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.delete(&pod, 30).await;
    stand.seconds(5).await;
    assert_eq!(
        stand.runtime.container("main").state,
        ContainerState::Running
    );
    stand.seconds(5).await;
    let calls = stand.runtime.calls();
    assert!(calls.contains(&"exec c2 drain".to_owned()), "{calls:?}");
    assert!(calls.contains(&"stop c2 21".to_owned()), "{calls:?}");
    assert!(stand.control_plane.is_gone("a"));
    assert!(
        !stand
            .control_plane
            .reasons()
            .contains(&"FailedPreStopHook".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_that_hangs_or_fails_does_not_make_the_end_later() {
    for (takes, code, stop) in [(99, 0, "stop c2 2"), (0, 1, "stop c2 29")] {
        let stand = Stand::new().await;
        let pod = with_hooks(None, Some(exec("drain")));
        let answer = ExecOutput {
            exit_code: code,
            ..ExecOutput::default()
        };
        {
            let mut state = stand.runtime.state.lock().unwrap();
            state.exec_takes = Duration::from_secs(takes);
            state.exec_answers.push_back(Ok(answer));
        }
        stand.upsert(&pod).await;
        stand.seconds(1).await;
        stand.delete(&pod, 30).await;
        stand.seconds(33).await;
        let calls = stand.runtime.calls();
        assert!(calls.contains(&stop.to_owned()), "{calls:?}");
        assert!(stand.control_plane.is_gone("a"));
        let reasons = stand.control_plane.reasons();
        assert!(
            reasons.contains(&"FailedPreStopHook".to_owned()),
            "{reasons:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_within_a_pre_stop_hook_does_not_extend_the_deadline() {
    let stand = Stand::new().await;
    let pod = with_hooks(None, Some(sleep(20)));
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    let deleting = stand.deleting(&pod, 30);
    stand.upsert(&deleting).await;
    stand.seconds(15).await;
    let stand = stand.restart().await;
    stand.list(&[&deleting]).await;
    // The hook runs again, but the pod ends thirty seconds after its deletion at the latest.
    stand.seconds(14).await;
    assert_eq!(
        stand.runtime.container("main").state,
        ContainerState::Running
    );
    stand.seconds(4).await;
    assert!(stand.control_plane.is_gone("a"));
    let calls = stand.runtime.calls();
    assert!(calls.contains(&"stop c2 2".to_owned()), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_deletion_cuts_a_pre_stop_hook_short() {
    let stand = Stand::new().await;
    let pod = with_hooks(None, Some(sleep(25)));
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.delete(&pod, 30).await;
    stand.seconds(2).await;
    stand.delete(&pod, 1).await;
    stand.seconds(4).await;
    assert!(stand.control_plane.is_gone("a"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_has_ended_has_no_pre_stop_hook() {
    let stand = Stand::new().await;
    let mut pod = with_hooks(None, Some(exec("drain")));
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    stand.die("a", &stand.runtime.container("main").id, 0).await;
    stand.seconds(1).await;
    stand.delete(&pod, 30).await;
    stand.seconds(2).await;
    assert!(stand.control_plane.is_gone("a"));
    assert_eq!(calls(&stand, &["exec"]), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_its_liveness_probe_is_stopped_and_comes_back() {
    let stand = Stand::new().await;
    let mut pod = with_hooks(None, Some(exec("drain")));
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some("OnFailure".into());
    spec.containers[0].liveness_probe = Some(Probe {
        exec: Some(ExecAction {
            command: Some(vec!["alive".to_owned()]),
        }),
        failure_threshold: Some(1),
        period_seconds: Some(5),
        termination_grace_period_seconds: Some(4),
        ..Probe::default()
    });
    let failed = ExecOutput {
        exit_code: 1,
        ..ExecOutput::default()
    };
    {
        let mut state = stand.runtime.state.lock().unwrap();
        state.stop_code = Some(0);
        state.exec_answers.push_back(Ok(failed));
    }
    stand.upsert(&pod).await;
    stand.seconds(20).await;
    let main = stand.runtime.container("main");
    assert_eq!((main.attempt, main.state), (1, ContainerState::Running));
    let told = stand.control_plane.told.lock().unwrap();
    let killing = told
        .events
        .iter()
        .find(|one| one.reason.as_deref() == Some("Killing"));
    let message = killing.and_then(|one| one.message.as_deref());
    assert_eq!(
        message,
        Some("Container main failed liveness probe, will be restarted")
    );
    drop(told);
    let calls = stand.runtime.calls();
    let drained = calls
        .iter()
        .position(|call| call == "exec c2 drain")
        .unwrap();
    let stopped = calls.iter().position(|call| call == "stop c2 3").unwrap();
    assert!(drained < stopped, "{calls:?}");
}
