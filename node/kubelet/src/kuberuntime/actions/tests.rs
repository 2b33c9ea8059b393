use k8s_openapi::api::core::v1::PodSpec;
use proptest::prelude::*;
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::ContainerExit;

use super::*;
use crate::kuberuntime::hash::spec_hash;

mod sidecars;
mod verdicts;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1000 + second).unwrap()
}

fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: Some("x".into()),
        ..Container::default()
    }
}

fn pod(policy: &str, init: &[&str], mains: &[&str]) -> Pod {
    let all = |names: &[&str]| names.iter().map(|name| container(name)).collect();
    let spec = PodSpec {
        restart_policy: Some(policy.into()),
        init_containers: Some(all(init)),
        containers: all(mains),
        ..PodSpec::default()
    };
    Pod {
        spec: Some(spec),
        ..Pod::default()
    }
}

fn sandbox(attempt: u32, state: SandboxState) -> SandboxStatus {
    SandboxStatus {
        id: SandboxId::from(format!("s{attempt}")),
        pod: PodKey::of(&Pod::default()),
        attempt,
        state,
        created_at: at(0),
        ips: Vec::new(),
    }
}

/// `state`: `created`, `running`, `unknown`, `exited` (code not known), or the exit code.
fn made(name: &str, attempt: u32, in_sandbox: u32, state: &str) -> ContainerStatus {
    let code = state.parse::<i32>().ok();
    ContainerStatus {
        id: ContainerId::from(format!("{name}{attempt}")),
        name: ContainerName::from(name),
        sandbox: SandboxId::from(format!("s{in_sandbox}")),
        attempt,
        state: match state {
            "created" => ContainerState::Created,
            "running" => ContainerState::Running,
            "unknown" => ContainerState::Unknown,
            _ => ContainerState::Exited,
        },
        created_at: at(0),
        started_at: Some(at(0)),
        exit: code.map(|code| ContainerExit {
            code,
            oom_killed: false,
            at: at(0),
            reason: String::new(),
            message: String::new(),
        }),
        image: "x".into(),
        image_id: String::new(),
        spec_hash: Some(spec_hash(&container(name))),
    }
}

fn decide(
    pod: &Pod,
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
    now: i64,
) -> PodActions {
    decide_by(
        pod,
        sandboxes,
        containers,
        now,
        &ProbeResults::default(),
        |_| (),
    )
}

/// The decision after `marks` were made on what was observed.
fn decide_by(
    pod: &Pod,
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
    now: i64,
    probes: &ProbeResults,
    marks: impl Fn(&mut History),
) -> PodActions {
    let observed = RuntimePod {
        pod: PodKey::of(pod),
        sandboxes,
        containers,
    };
    let mut history = History::default();
    history.absorb(&observed);
    marks(&mut history);
    compute_pod_actions(pod, &observed, &history, probes, at(now))
}

fn ready() -> Vec<SandboxStatus> {
    vec![sandbox(0, SandboxState::Ready)]
}

fn started(actions: &PodActions) -> Vec<(&str, u32)> {
    actions
        .start
        .iter()
        .map(|one| (one.name.as_str(), one.attempt))
        .collect()
}

#[test]
fn a_new_pod_gets_its_first_sandbox_and_then_all_main_containers_at_once() {
    let pod = pod("Always", &[], &["a", "b"]);
    assert_eq!(decide(&pod, vec![], vec![], 0).create_sandbox, Some(0));
    let actions = decide(&pod, ready(), vec![], 0);
    assert_eq!(started(&actions), [("a", 0), ("b", 0)]);
    assert_eq!(actions.create_sandbox, None);
}

#[test]
fn init_containers_run_one_after_the_other_before_the_main_ones() {
    let pod = pod("Always", &["i", "j"], &["a"]);
    let next = |containers| {
        let actions = decide(&pod, ready(), containers, 0);
        started(&actions)
            .first()
            .map(|(name, attempt)| format!("{name}{attempt}"))
    };
    assert_eq!(next(vec![]).as_deref(), Some("i0"));
    assert_eq!(next(vec![made("i", 0, 0, "running")]), None);
    assert_eq!(next(vec![made("i", 0, 0, "1")]).as_deref(), Some("i1"));
    assert_eq!(next(vec![made("i", 0, 0, "0")]).as_deref(), Some("j0"));
    assert_eq!(
        next(vec![made("i", 0, 0, "exited")]),
        None,
        "the code is not known yet"
    );
    let both = vec![made("i", 0, 0, "0"), made("j", 0, 0, "0")];
    assert_eq!(next(both).as_deref(), Some("a0"));
    // The records of the init containers may be gone: they are not run again.
    assert_eq!(next(vec![made("a", 0, 0, "running")]), None);
    assert_eq!(next(vec![made("a", 0, 0, "1")]).as_deref(), Some("a1"));
}

#[test]
fn an_init_container_that_fails_ends_a_pod_that_never_restarts() {
    let actions = decide(
        &pod("Never", &["i"], &["a"]),
        ready(),
        vec![made("i", 0, 0, "1")],
        0,
    );
    assert!(actions.finished && actions.start.is_empty());
}

#[test]
fn the_restart_policy_decides_what_follows_an_exit() {
    for (policy, code, restarts) in [
        ("Always", "0", true),
        ("Always", "1", true),
        ("OnFailure", "0", false),
        ("OnFailure", "1", true),
        ("Never", "0", false),
        ("Never", "1", false),
    ] {
        let pod = pod(policy, &[], &["a"]);
        let actions = decide(&pod, ready(), vec![made("a", 0, 0, code)], 0);
        assert_eq!(!actions.start.is_empty(), restarts, "{policy} {code}");
        assert_eq!(actions.finished, !restarts, "{policy} {code}");
    }
}

#[test]
fn a_crash_loop_waits_ten_seconds_then_twenty_and_starts_anew_after_a_long_run() {
    let pod = pod("Always", &[], &["a"]);
    let wait = |containers: Vec<ContainerStatus>, now| {
        let actions = decide(&pod, ready(), containers, now);
        actions
            .backing_off
            .first()
            .map(|back| (back.wait.as_secs(), back.left.as_secs()))
    };
    assert_eq!(wait(vec![made("a", 0, 0, "1")], 0), None);
    assert_eq!(wait(vec![made("a", 1, 0, "1")], 3), Some((10, 7)));
    assert_eq!(wait(vec![made("a", 1, 0, "1")], 10), None);
    assert_eq!(wait(vec![made("a", 2, 0, "1")], 5), Some((20, 15)));
    assert_eq!(wait(vec![made("a", 60, 0, "1")], 0), Some((300, 300)));
    // The wall clock has jumped back: never longer than the whole wait.
    assert_eq!(wait(vec![made("a", 1, 0, "1")], -500), Some((10, 10)));
    let mut long = made("a", 5, 0, "1");
    long.started_at = Some(at(-601));
    assert_eq!(wait(vec![long.clone()], 0), None);
    let after = |attempt| wait(vec![made("a", attempt, 0, "1"), long.clone()], 0);
    assert_eq!((after(6), after(7)), (Some((10, 10)), Some((20, 20))));
}

#[test]
fn a_lost_sandbox_is_cleared_away_before_the_next_one_is_made() {
    let pod = pod("Always", &[], &["a"]);
    let lost = || vec![sandbox(0, SandboxState::NotReady)];
    let actions = decide(&pod, lost(), vec![made("a", 0, 0, "running")], 0);
    assert!(actions.create_sandbox.is_none() && actions.start.is_empty());
    assert_eq!(actions.stop.len(), 1);
    let actions = decide(&pod, lost(), vec![made("a", 0, 0, "137")], 0);
    assert_eq!(actions.remove_sandboxes, [SandboxId::from("s0")]);
    assert_eq!(actions.create_sandbox, None);
    let mut history = History::default();
    let before = RuntimePod {
        pod: PodKey::of(&pod),
        sandboxes: lost(),
        containers: vec![made("a", 0, 0, "137")],
    };
    history.absorb(&before);
    let nothing = RuntimePod::empty(PodKey::of(&pod));
    let actions = compute_pod_actions(&pod, &nothing, &history, &ProbeResults::default(), at(0));
    assert_eq!(actions.create_sandbox, Some(1));
}

#[test]
fn a_pod_that_must_not_run_twice_gets_no_second_sandbox() {
    let lost = vec![sandbox(0, SandboxState::NotReady)];
    let actions = decide(
        &pod("Never", &[], &["a"]),
        lost,
        vec![made("a", 0, 0, "0")],
        0,
    );
    assert!(actions.finished && actions.create_sandbox.is_none());
    assert!(actions.remove_sandboxes.is_empty(), "its logs stay");
}

#[test]
fn of_two_ready_sandboxes_the_newer_one_is_kept() {
    let two = vec![
        sandbox(1, SandboxState::Ready),
        sandbox(0, SandboxState::Ready),
    ];
    let actions = decide(&pod("Always", &[], &["a"]), two, vec![], 0);
    assert_eq!(actions.remove_sandboxes, [SandboxId::from("s0")]);
    assert_eq!(actions.start[0].sandbox, SandboxId::from("s1"));
}

#[test]
fn a_container_that_was_created_is_started_and_one_with_a_new_image_is_replaced() {
    let mut pod = pod("Always", &[], &["a"]);
    let actions = decide(&pod, ready(), vec![made("a", 0, 0, "created")], 0);
    assert_eq!(actions.start[0].created, Some(ContainerId::from("a0")));
    pod.spec.as_mut().unwrap().containers[0].image = Some("y".into());
    let actions = decide(&pod, ready(), vec![made("a", 0, 0, "created")], 0);
    assert_eq!(actions.remove, [ContainerId::from("a0")]);
    let actions = decide(&pod, ready(), vec![made("a", 0, 0, "running")], 0);
    assert_eq!(actions.stop[0].id, ContainerId::from("a0"));
    let actions = decide(&pod, ready(), vec![made("a", 3, 0, "1")], 0);
    assert_eq!(started(&actions), [("a", 4)], "a new image does not wait");
}

#[test]
fn one_dead_record_stays_beside_what_lives() {
    let removed = |states: [&str; 3]| {
        let made = |(attempt, state): (u32, &str)| made("a", attempt, 0, state);
        let all = (0..).zip(states).map(made).collect();
        let mut gone = decide(&pod("Always", &[], &["a"]), ready(), all, 0).remove;
        gone.sort();
        gone
    };
    let (a0, a1) = (ContainerId::from("a0"), ContainerId::from("a1"));
    // The log of the previous run is that of `a1`.
    assert_eq!(removed(["1", "1", "running"]), std::slice::from_ref(&a0));
    assert_eq!(removed(["1", "1", "created"]), std::slice::from_ref(&a0));
    // The previous run is the one that has just ended.
    assert_eq!(removed(["1", "1", "1"]), [a0.clone(), a1]);
    assert_eq!(
        removed(["1", "1", "exited"]),
        [a0],
        "its end is not known yet"
    );
}

fn any_container() -> impl Strategy<Value = ContainerStatus> {
    let states = ["created", "running", "unknown", "exited", "0", "1", "137"];
    (
        0..3_usize,
        0..4_u32,
        0..2_u32,
        prop::sample::select(states.to_vec()),
    )
        .prop_map(|(name, attempt, sandbox, state)| {
            made(["i", "a", "b"][name], attempt, sandbox, state)
        })
}

fn any_sandbox() -> impl Strategy<Value = SandboxStatus> {
    (0..2_u32, any::<bool>()).prop_map(|(attempt, ready)| {
        sandbox(
            attempt,
            if ready {
                SandboxState::Ready
            } else {
                SandboxState::NotReady
            },
        )
    })
}

proptest! {
    #[test]
    fn whatever_is_observed_the_actions_never_contradict_each_other(
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        mut sandboxes in prop::collection::vec(any_sandbox(), 0..3),
        mut containers in prop::collection::vec(any_container(), 0..8),
        now in 0..700_i64,
    ) {
        sandboxes.sort_by_key(|one| one.attempt);
        sandboxes.dedup_by_key(|one| one.attempt);
        containers.sort_by(|x, y| x.id.cmp(&y.id));
        containers.dedup_by_key(|one| one.id.clone());
        let ready = sandboxes.iter().any(|one| one.state == SandboxState::Ready);
        let none = sandboxes.is_empty();
        let pod = pod(policy, &["i"], &["a", "b"]);
        let actions = decide(&pod, sandboxes.clone(), containers.clone(), now);
        // Same arguments, same answer.
        prop_assert_eq!(&actions, &decide(&pod, sandboxes, containers.clone(), now));
        if actions.create_sandbox.is_some() {
            prop_assert!(!ready && none && actions.start.is_empty());
        }
        if !actions.start.is_empty() {
            prop_assert!(ready && !actions.finished);
        }
        if actions.finished {
            prop_assert!(actions.backing_off.is_empty() && actions.create_sandbox.is_none());
        }
        let init = actions.start.iter().filter(|one| one.name.as_str() == "i").count();
        prop_assert!(init == 0 || actions.start.len() == 1, "init containers start alone");
        for start in &actions.start {
            let same = containers.iter().filter(|one| one.name == start.name);
            for other in same {
                prop_assert!(start.created.is_some() || other.attempt < start.attempt);
            }
        }
    }
}
