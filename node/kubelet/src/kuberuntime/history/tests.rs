use swiftlet_model::ids::PodKey;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1000 + second).unwrap()
}

fn record(attempt: u32, started: i64, ended: Option<i64>) -> ContainerStatus {
    ContainerStatus {
        id: ContainerId::from(format!("a{attempt}")),
        name: "a".into(),
        sandbox: "s".into(),
        attempt,
        state: match ended {
            Some(_) => ContainerState::Exited,
            None => ContainerState::Running,
        },
        created_at: at(started),
        started_at: Some(at(started)),
        exit: ended.map(|second| ContainerExit {
            code: 1,
            oom_killed: false,
            at: at(second),
            reason: "Error".into(),
            message: String::new(),
        }),
        image: String::new(),
        image_id: String::new(),
        spec_hash: None,
    }
}

fn pod(containers: Vec<ContainerStatus>) -> RuntimePod {
    let key = PodKey {
        namespace: "default".into(),
        name: "p".into(),
        uid: "u".into(),
    };
    RuntimePod {
        containers,
        ..RuntimePod::empty(key)
    }
}

fn wait(history: &History, attempt: u32) -> u64 {
    history.crash_wait("a", attempt).as_secs()
}

/// The wait after `newest`, as a program that has just been started sees it.
fn restarted(newest: ContainerStatus, before: ContainerStatus) -> u64 {
    let attempt = newest.attempt;
    let observed = pod(vec![newest, before]);
    let mut history = History::default();
    history.absorb(&observed);
    history.settle(&observed, at(10_000));
    wait(&history, attempt)
}

#[test]
fn after_a_restart_of_the_agent_the_pause_before_a_run_tells_how_many_crashes_were_counted() {
    // Four crashes in a row: 40 seconds were waited, now 80 are.
    assert_eq!(
        restarted(record(4, 140, Some(141)), record(3, 99, Some(100))),
        80
    );
    // Long ago there were many crashes; the newest pause was that of the first one.
    assert_eq!(
        restarted(record(40, 110, Some(111)), record(39, 99, Some(100))),
        20
    );
    assert_eq!(
        restarted(record(40, 100, Some(101)), record(39, 90, Some(100))),
        10
    );
    // A pause that was longer than any wait tells nothing.
    assert_eq!(
        restarted(record(3, 5000, Some(5001)), record(2, 0, Some(100))),
        40
    );
}

#[test]
fn the_longest_wait_is_the_nodes() {
    let mut history = History::new(Duration::from_secs(15));
    history.absorb(&pod(vec![record(9, 0, Some(1))]));
    assert_eq!(wait(&history, 9), 15);
}

#[test]
fn ten_minutes_of_running_start_the_crash_loop_anew() {
    let mut history = History::default();
    history.absorb(&pod(vec![record(9, 0, Some(600))]));
    assert_eq!(wait(&history, 9), 0);
    history.absorb(&pod(vec![record(10, 600, Some(601))]));
    assert_eq!(wait(&history, 10), 10);
    history.absorb(&pod(vec![record(11, 611, Some(612))]));
    assert_eq!(wait(&history, 11), 20);
}

#[test]
fn marks_go_with_their_containers() {
    let mut history = History::default();
    let id = ContainerId::from("a0");
    history.absorb(&pod(vec![record(0, 0, None)]));
    history.begin_start(&id);
    history.doom(&id);
    assert!(history.is_starting(&id) && history.is_doomed(&id));
    history.end_start(&id, true);
    assert!(!history.is_starting(&id) && history.has_failed_hook(&id));
    history.absorb(&pod(vec![record(1, 5, None)]));
    assert!(!history.has_failed_hook(&id) && !history.is_doomed(&id));
}
