//! Containers that must go: by their probes, their hooks or their own policy.

use swiftlet_model::runtime::ContainerExit;

use super::*;
use crate::prober::results::{ProbeKind, Unhealthy};

fn failing(id: &str, probe: ProbeKind, grace_s: Option<u64>) -> ProbeResults {
    let mut probes = ProbeResults::default();
    let unhealthy = Unhealthy {
        probe,
        grace: grace_s.map(Duration::from_secs),
    };
    probes.set_unhealthy(&id.into(), unhealthy);
    probes
}

#[test]
fn a_container_that_fails_its_probe_is_stopped_in_the_words_of_kubelet() {
    for (policy, probe, message) in [
        (
            "Always",
            ProbeKind::Liveness,
            "Container a failed liveness probe, will be restarted",
        ),
        (
            "OnFailure",
            ProbeKind::Startup,
            "Container a failed startup probe, will be restarted",
        ),
        (
            "Never",
            ProbeKind::Liveness,
            "Container a failed liveness probe",
        ),
    ] {
        let probes = failing("a0", probe, Some(7));
        let pod = pod(policy, &[], &["a"]);
        let running = vec![made("a", 0, 0, "running")];
        let actions = decide_by(&pod, ready(), running, 0, &probes, |_| ());
        let stop = &actions.stop[0];
        assert_eq!(stop.message, message);
        assert_eq!(stop.grace, Some(Duration::from_secs(7)));
        assert_eq!(stop.restart, policy != "Never");
    }
    let mut pod = pod("Never", &["s"], &["a"]);
    let init = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    init[0].restart_policy = Some("Always".into());
    let probes = failing("s0", ProbeKind::Liveness, None);
    let running = vec![made("s", 0, 0, "running"), made("a", 0, 0, "running")];
    let actions = decide_by(&pod, ready(), running, 0, &probes, |_| ());
    assert_eq!(
        actions.stop[0].message,
        "Init container s failed liveness probe"
    );
    assert!(actions.stop[0].restart, "a sidecar always comes back");
}

#[test]
fn a_container_that_was_stopped_to_be_started_anew_comes_back_after_exit_code_zero() {
    let doomed = |history: &mut History| history.doom(&"a0".into());
    let none = ProbeResults::default();
    for policy in ["OnFailure", "Never"] {
        let pod = pod(policy, &[], &["a"]);
        let ended = || vec![made("a", 0, 0, "0")];
        assert!(decide(&pod, ready(), ended(), 0).finished);
        let actions = decide_by(&pod, ready(), ended(), 0, &none, doomed);
        assert_eq!(started(&actions), [("a", 1)], "{policy}");
        assert!(!actions.finished);
    }
}

#[test]
fn a_container_that_ran_longer_than_its_wait_is_started_anew_at_once() {
    let pod = pod("Always", &[], &["a"]);
    let none = ProbeResults::default();
    let doomed = |history: &mut History| history.doom(&"a2".into());
    // The run before has ended at 0; 20 seconds are to be waited after the third run.
    let third = |end| {
        let mut third = made("a", 2, 0, "1");
        third.exit = Some(ContainerExit {
            at: at(end),
            ..third.exit.unwrap()
        });
        vec![third, made("a", 1, 0, "1")]
    };
    let waits = |end, marks: fn(&mut History)| {
        let actions = decide_by(&pod, ready(), third(end), end, &none, marks);
        !actions.backing_off.is_empty()
    };
    assert!(!waits(20, |history| history.doom(&"a2".into())));
    assert!(waits(19, doomed), "it is in its crash loop");
    assert!(waits(20, |_| ()), "it has ended by itself");
}

#[test]
fn a_container_whose_post_start_hook_failed_is_stopped_and_its_policy_decides() {
    let pod = pod("Always", &[], &["a"]);
    let none = ProbeResults::default();
    let failed = |history: &mut History| history.end_start(&"a0".into(), true);
    let actions = decide_by(
        &pod,
        ready(),
        vec![made("a", 0, 0, "running")],
        0,
        &none,
        failed,
    );
    assert_eq!(actions.stop[0].message, "FailedPostStartHook");
    assert!(!actions.stop[0].restart);
}

#[test]
fn a_container_has_a_policy_of_its_own() {
    let mut one = pod("Never", &[], &["a", "b"]);
    let mains = &mut one.spec.as_mut().unwrap().containers;
    mains[0].restart_policy = Some("OnFailure".into());
    let ended = |a, b| vec![made("a", 0, 0, a), made("b", 0, 0, b)];
    let actions = decide(&one, ready(), ended("1", "1"), 0);
    assert_eq!(started(&actions), [("a", 1)]);
    assert!(!actions.finished);
    assert!(decide(&one, ready(), ended("0", "1"), 0).finished);
    // Since one of its containers may run again, the pod gets another sandbox.
    let mut history = History::default();
    history.absorb(&RuntimePod {
        pod: PodKey::of(&one),
        sandboxes: vec![sandbox(0, SandboxState::NotReady)],
        containers: ended("1", "1"),
    });
    let nothing = RuntimePod::empty(PodKey::of(&one));
    let none = ProbeResults::default();
    let actions = compute_pod_actions(&one, &nothing, &history, &none, at(0));
    assert_eq!(actions.create_sandbox, Some(1));
}

#[test]
fn an_init_container_that_runs_is_let_run_when_its_image_changes() {
    let mut pod = pod("Always", &["i"], &["a"]);
    let init = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    init[0].image = Some("y".into());
    let actions = decide(&pod, ready(), vec![made("i", 0, 0, "running")], 0);
    assert_eq!(actions, PodActions::default());
    let init = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    init[0].restart_policy = Some("Always".into());
    let actions = decide(&pod, ready(), vec![made("i", 0, 0, "running")], 0);
    assert_eq!(
        actions.stop[0].message,
        "Init container i definition changed"
    );
}
