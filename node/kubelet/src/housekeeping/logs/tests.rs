//! Names of logs, and which of them stay.

use proptest::prelude::*;
use swiftlet_model::ids::PodKey;

use super::*;
use crate::testing::runtime::Fault;
use crate::testing::stand::{Stand, pod};

fn at() -> Timestamp {
    "2024-01-02T15:04:05Z".parse().unwrap()
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_first_rotation_gives_the_log_a_stamp() {
    let plan = rotation("0.log", &[], 5, at());
    assert_eq!(plan.rotated, "0.log.20240102-150405");
    assert!(plan.remove.is_empty() && plan.compress.is_empty());
}

#[test]
fn older_logs_are_compressed_and_the_oldest_go() {
    let made_of = names(&[
        "0.log.20240102-140000",
        "0.log.20240102-110000.gz",
        "0.log.20240102-100000.gz",
        "0.log.20240102-120000.gz",
    ]);
    let plan = rotation("0.log", &made_of, 5, at());
    assert_eq!(plan.remove, ["0.log.20240102-100000.gz"]);
    assert_eq!(plan.compress, ["0.log.20240102-140000"]);
    let plan = rotation("0.log", &made_of, 2, at());
    assert_eq!(plan.remove.len(), 4);
    assert!(plan.compress.is_empty());
}

#[test]
fn what_an_interrupted_compression_left_is_removed() {
    let made_of = names(&[
        "0.log.20240102-120000.tmp",
        "0.log.20240102-120000",
        "0.log.20240102-110000",
        "0.log.20240102-110000.gz",
    ]);
    let plan = rotation("0.log", &made_of, 5, at());
    assert_eq!(
        plan.remove,
        ["0.log.20240102-120000.tmp", "0.log.20240102-110000"]
    );
    assert_eq!(plan.compress, ["0.log.20240102-120000"]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The log is rotated.
    Rotate,
    /// The agent ends after the file that is compressed was written, before it has its name.
    CrashBeforeName,
    /// The agent ends when the compressed file has its name and the old one is still there.
    CrashAfterName,
}

proptest! {
    /// The files after any number of rotations and crashes: at most as many as allowed, each log
    /// once, the newest ones.
    #[test]
    fn the_newest_logs_stay_whatever_is_interrupted(
        steps in prop::collection::vec(
            prop_oneof![
                Just(Step::Rotate),
                Just(Step::CrashBeforeName),
                Just(Step::CrashAfterName),
            ],
            1..30,
        ),
        files_max in 2_usize..8,
    ) {
        let mut files: Vec<String> = Vec::new();
        let mut rotated = Vec::new();
        let mut now = at();
        for step in steps {
            now += Duration::from_secs(1);
            let plan = rotation("0.log", &files, files_max, now);
            files.retain(|name| !plan.remove.contains(name));
            let compressed = |name: &String| format!("{name}{COMPRESSED}");
            match (step, plan.compress.first()) {
                (Step::CrashBeforeName, Some(first)) => files.push(format!("{first}{UNFINISHED}")),
                (Step::CrashAfterName, Some(first)) => files.push(compressed(first)),
                _ => {
                    files.retain(|name| !plan.compress.contains(name));
                    files.extend(plan.compress.iter().map(compressed));
                    files.push(plan.rotated.clone());
                    rotated.push(plan.rotated);
                    let logs = files.len() + 1;
                    prop_assert!(logs <= files_max, "{logs} files: {files:?}");
                    let mut kept: Vec<_> = files
                        .iter()
                        .map(|name| name.trim_end_matches(COMPRESSED).to_owned())
                        .collect();
                    kept.sort();
                    let newest = rotated.len() - kept.len();
                    prop_assert_eq!(&kept[..], &rotated[newest..]);
                    prop_assert!(kept.len() == (files_max - 1).min(rotated.len()));
                }
            }
        }
    }
}

/// A kubelet with one pod whose log is as large as said.
async fn with_log(bytes: u64) -> (Stand, PathBuf) {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    let path = PathBuf::from("/logs/default_a_a/main/0.log");
    let mut files = stand.node.log_files.files.lock().unwrap();
    files.insert(path.clone(), bytes);
    drop(files);
    (stand, path)
}

fn reopened(stand: &Stand) -> usize {
    let calls = stand.runtime.calls();
    calls
        .iter()
        .filter(|call| call.starts_with("reopen "))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_too_large_is_moved_away_and_opened_anew() {
    let (stand, _) = with_log(10 << 20).await;
    stand.seconds(21).await;
    let names = stand.node.log_files.names();
    assert!(names[0].starts_with("0.log.2023"), "{names:?}");
    assert!(reopened(&stand) >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_small_log_is_left_alone() {
    let (stand, _) = with_log((10 << 20) - 1).await;
    stand.seconds(60).await;
    assert_eq!(stand.node.log_files.names(), ["0.log"]);
    assert_eq!(reopened(&stand), 0);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_opened_anew_keeps_its_name() {
    let (stand, _) = with_log(10 << 20).await;
    let faults_left = || stand.runtime.state.lock().unwrap().faults.len();
    // First the runtime is asked whether the container runs.
    let faults = [None, Some(Fault::Refused)];
    stand.runtime.state.lock().unwrap().faults.extend(faults);
    for _ in 0..30 {
        if faults_left() == 0 {
            break;
        }
        stand.seconds(1).await;
    }
    assert_eq!((faults_left(), reopened(&stand)), (0, 0), "it was tried");
    assert_eq!(stand.node.log_files.names(), ["0.log"]);
    stand.seconds(11).await;
    let names = stand.node.log_files.names();
    assert!(names[0].starts_with("0.log.2023"), "tried again: {names:?}");
    assert!(reopened(&stand) >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_moved_away_by_an_agent_that_crashed_is_opened_anew() {
    let (stand, path) = with_log(1).await;
    stand.node.log_files.files.lock().unwrap().remove(&path);
    stand.seconds(21).await;
    assert!(reopened(&stand) >= 1);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_container_that_has_ended_since_the_last_look_is_left_alone() {
    let (stand, path) = with_log(1).await;
    // Let a look at the runtime list the container as running, and end it right after that.
    stand.seconds(9).await;
    let id = stand.runtime.container("main").id;
    stand.runtime.kill(&id, 0);
    stand.node.log_files.files.lock().unwrap().remove(&path);
    let asked = || {
        let calls = stand.runtime.calls();
        let call = format!("container_status {id}");
        calls.iter().filter(|one| **one == call).count()
    };
    let before = asked();
    for _ in 0..200 {
        if asked() > before {
            break;
        }
        stand.turn(Duration::from_millis(100)).await;
    }
    assert!(asked() > before, "it was looked at");
    stand.turn(Duration::from_millis(100)).await;
    assert_eq!(reopened(&stand), 0);
}

#[tokio::test(start_paused = true)]
async fn log_folders_of_pods_that_do_not_exist_are_removed() {
    let (stand, _) = with_log(1).await;
    let key = |name: &str| PodKey {
        namespace: "default".into(),
        name: name.to_owned(),
        uid: name.into(),
    };
    {
        let mut pods = stand.node.log_files.pods.lock().unwrap();
        pods.extend([key("a"), key("gone")]);
        let mut logs = stand.node.logs.lock().unwrap();
        logs.extend(["a".into(), "gone".into()]);
    }
    stand.seconds(25).await;
    let left: Vec<_> = stand.node.logs.lock().unwrap().iter().cloned().collect();
    assert_eq!(left, ["a".into()]);
}
