//! Sidecars, ephemeral containers and postStart hooks.

use k8s_openapi::api::core::v1::{
    EphemeralContainer, ExecAction, Lifecycle, LifecycleHandler, Probe,
};

use super::*;

/// `s` and `t` are sidecars, `i` is not; `a` is the main container.
fn with_sidecars(policy: &str) -> Pod {
    let mut pod = pod(policy, &["s", "i", "t"], &["a"]);
    let spec = pod.spec.as_mut().unwrap();
    for one in spec.init_containers.as_mut().unwrap() {
        if one.name != "i" {
            one.restart_policy = Some("Always".into());
        }
    }
    pod
}

fn next(pod: &Pod, containers: Vec<ContainerStatus>) -> Vec<String> {
    let actions = decide(pod, ready(), containers, 0);
    let all = started(&actions);
    all.iter()
        .map(|(name, attempt)| format!("{name}{attempt}"))
        .collect()
}

#[test]
fn sidecars_and_init_containers_start_in_the_order_of_the_spec() {
    let pod = with_sidecars("Always");
    let s = || made("s", 0, 0, "running");
    let t = || made("t", 0, 0, "running");
    let i = |state| made("i", 0, 0, state);
    assert_eq!(next(&pod, vec![]), ["s0"]);
    assert_eq!(next(&pod, vec![made("s", 0, 0, "created")]), ["s0"]);
    assert_eq!(next(&pod, vec![s()]), ["i0"]);
    assert_eq!(next(&pod, vec![s(), i("running")]), [""; 0]);
    assert_eq!(next(&pod, vec![s(), i("0")]), ["t0"]);
    assert_eq!(next(&pod, vec![s(), i("0"), t()]), ["a0"]);
    // A sidecar that died comes back beside whatever else is to be done.
    assert_eq!(next(&pod, vec![made("s", 0, 0, "1"), i("running")]), ["s1"]);
    assert_eq!(next(&pod, vec![made("s", 0, 0, "1"), i("0")]), ["s1", "t0"]);
    assert_eq!(next(&pod, vec![s(), i("0"), made("t", 0, 0, "1")]), ["t1"]);
}

#[test]
fn the_next_container_waits_until_a_sidecar_has_started() {
    let mut pod = with_sidecars("Always");
    let init = pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
    init[0].startup_probe = Some(Probe::default());
    let running = || vec![made("s", 0, 0, "running")];
    let by = |probes: &ProbeResults, starting: bool| {
        let actions = decide_by(&pod, ready(), running(), 0, probes, |history| {
            if starting {
                history.begin_start(&"s0".into());
            }
        });
        !actions.start.is_empty()
    };
    let mut passed = ProbeResults::default();
    assert!(!by(&passed, false), "its startup probe has not succeeded");
    passed.set_started(&"s0".into());
    assert!(by(&passed, false));
    assert!(!by(&passed, true), "its postStart hook is not over");
}

#[test]
fn a_sidecar_comes_back_whatever_its_exit_code_and_the_pods_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let pod = with_sidecars(policy);
        for code in ["0", "1"] {
            let all = vec![
                made("s", 0, 0, "running"),
                made("t", 0, 0, code),
                made("a", 0, 0, "running"),
            ];
            assert_eq!(next(&pod, all), ["t1"], "{policy} {code}");
        }
        // Records of init containers that are gone bring no init container back, but sidecars.
        let alone = vec![made("a", 0, 0, "running")];
        assert_eq!(next(&pod, alone), ["s0", "t0"], "{policy}");
    }
    let pod = with_sidecars("Never");
    let crashing = vec![made("s", 3, 0, "1"), made("a", 0, 0, "running")];
    let actions = decide(&pod, ready(), crashing, 0);
    assert_eq!(actions.backing_off[0].wait.as_secs(), 40, "it backs off");
}

#[test]
fn sidecars_do_not_keep_a_pod_alive() {
    for (policy, code) in [("Never", "0"), ("Never", "1"), ("OnFailure", "0")] {
        let all = vec![
            made("s", 0, 0, "running"),
            made("t", 0, 0, "1"),
            made("a", 0, 0, code),
        ];
        let actions = decide(&with_sidecars(policy), ready(), all, 0);
        let expected = PodActions {
            finished: true,
            ..PodActions::default()
        };
        assert_eq!(actions, expected, "{policy} {code}");
    }
    let failed = vec![made("s", 0, 0, "running"), made("i", 0, 0, "1")];
    let actions = decide(&with_sidecars("Never"), ready(), failed, 0);
    assert!(actions.finished, "an init container has failed");
}

#[test]
fn an_ephemeral_container_is_started_once_and_never_again() {
    let mut pod = pod("Always", &["i"], &["a"]);
    let debug = EphemeralContainer {
        name: "d".into(),
        image: Some("x".into()),
        ..EphemeralContainer::default()
    };
    pod.spec.as_mut().unwrap().ephemeral_containers = Some(vec![debug]);
    let i = |state| made("i", 0, 0, state);
    assert_eq!(
        next(&pod, vec![i("running")]),
        ["d0"],
        "even before the others"
    );
    assert_eq!(
        next(&pod, vec![i("running"), made("d", 0, 0, "created")]),
        ["d0"]
    );
    for state in ["running", "0", "1", "exited"] {
        let all = vec![made("a", 0, 0, "running"), made("d", 0, 0, state)];
        assert_eq!(next(&pod, all), [""; 0], "{state}");
    }
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    let all = vec![made("a", 0, 0, "0"), made("d", 0, 0, "running")];
    assert!(decide(&pod, ready(), all, 0).finished, "it does not count");
    assert_eq!(
        next(&pod, vec![made("a", 0, 0, "0")]),
        [""; 0],
        "the pod is over"
    );
}

#[test]
fn main_containers_behind_one_with_a_post_start_hook_wait_for_it() {
    let mut pod = pod("Always", &[], &["a", "b", "c"]);
    let handler = LifecycleHandler {
        exec: Some(ExecAction::default()),
        ..LifecycleHandler::default()
    };
    pod.spec.as_mut().unwrap().containers[1].lifecycle = Some(Lifecycle {
        post_start: Some(handler),
        ..Lifecycle::default()
    });
    let actions = decide(&pod, ready(), vec![], 0);
    let after: Vec<_> = actions.start.iter().map(|one| one.after.clone()).collect();
    assert_eq!(after, [None, None, Some("b".into())]);
    let running = || vec![made("a", 0, 0, "running"), made("b", 0, 0, "running")];
    let none = ProbeResults::default();
    let hook = |history: &mut History| history.begin_start(&"b0".into());
    let actions = decide_by(&pod, ready(), running(), 0, &none, hook);
    assert_eq!(started(&actions), []);
    assert_eq!(next(&pod, running()), ["c0"], "it is over");
    // One that waits for its next try holds nobody up.
    let crashing = vec![made("a", 0, 0, "running"), made("b", 3, 0, "1")];
    let actions = decide(&pod, ready(), crashing, 0);
    assert_eq!(started(&actions), [("c", 0)]);
    assert_eq!(actions.start[0].after, None);
}
