//! A container's start and its end are told once each, and the end with the right code.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind, PodTracker};

use crate::container::{Isolation, TestPod};
use crate::source::Source;

/// Kills whose latency is printed.
const KILLS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn every_exit_code_is_told_once_after_one_start() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    for isolation in [Isolation::OwnPids, Isolation::HostPids] {
        for code in [0, 1, 7, 255] {
            let id = format!("{isolation:?}-{code}");
            let container = pod.container(&id);
            let process = container.start(isolation, &format!("exit {code}"));
            source.expect_started(&pod, &id).await;
            let exit = source.expect_died(&pod, &id).await;
            assert_eq!(
                exit,
                KernelExit {
                    code,
                    signal: 0,
                    oom_killed: false
                }
            );
            process.wait();
        }
    }
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_told_as_128_and_its_number() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    // Number 1 of a namespace ignores SIGTERM from anybody unless it asked for it.
    for (isolation, signal, number) in [
        (Isolation::OwnPids, Signal::SIGKILL, 9),
        (Isolation::HostPids, Signal::SIGKILL, 9),
        (Isolation::HostPids, Signal::SIGTERM, 15),
    ] {
        let id = format!("{isolation:?}-{number}");
        let container = pod.container(&id);
        let process = container.start(isolation, "exec sleep 1000");
        source.expect_started(&pod, &id).await;
        let first = match isolation {
            Isolation::OwnPids => container.init(),
            Isolation::HostPids => process.id(),
        };
        kill(first, signal).expect("the container can be signalled");
        let exit = source.expect_died(&pod, &id).await;
        assert_eq!(
            exit,
            KernelExit {
                code: 128 + number,
                signal: number,
                oom_killed: false
            }
        );
        process.wait();
    }
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_is_told_at_once() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let mut latencies: Vec<Duration> = Vec::new();
    for number in 0..KILLS {
        let id = format!("c{number}");
        let container = pod.container(&id);
        let process = container.start(Isolation::OwnPids, "exec sleep 1000");
        source.expect_started(&pod, &id).await;
        let init = container.init();
        let killed = Instant::now();
        kill(init, Signal::SIGKILL).expect("the container can be killed");
        assert_eq!(source.expect_died(&pod, &id).await.code, 137);
        latencies.push(killed.elapsed());
        process.wait();
    }
    latencies.sort();
    let (p50, max) = (latencies[KILLS / 2], latencies[KILLS - 1]);
    println!("kill → event: p50 {p50:?}, max {max:?}, n {KILLS}");
}

/// Marks the copy of this test that plays the container.
const IN_CONTAINER: &str = "SWIFTLET_PLEG_TEST_IN_CONTAINER";

#[tokio::test(flavor = "multi_thread")]
async fn of_threads_only_the_last_exit_counts() {
    if std::env::var_os(IN_CONTAINER).is_some() {
        let threads: Vec<_> = (0..20).map(|_| std::thread::spawn(|| ())).collect();
        for thread in threads {
            thread.join().expect("it does nothing");
        }
        std::process::exit(7);
    }
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let container = pod.container("threads");
    let program = std::env::current_exe().expect("this program has a path");
    let process = container.start(
        Isolation::OwnPids,
        &format!(
            "{IN_CONTAINER}=1 exec {} --exact exits::of_threads_only_the_last_exit_counts",
            program.display()
        ),
    );
    source.expect_started(&pod, "threads").await;
    assert_eq!(source.expect_died(&pod, "threads").await.code, 7);
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_moves_into_cgroups_of_its_own_is_still_seen() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let container = pod.container("nested");
    let inner = container.directory.join("init.scope/deeper");
    let script = format!(
        "mkdir -p {0}; echo 0 > {0}/cgroup.procs; exit 3",
        inner.display()
    );
    let process = container.start(Isolation::OwnPids, &script);
    source.expect_started(&pod, "nested").await;
    assert_eq!(source.expect_died(&pod, "nested").await.code, 3);
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_program_cannot_be_run_is_a_hint_not_a_death() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let container = pod.container("aborted");
    let process = container.run("exec unshare --pid --fork /does/not/exist 2>/dev/null");
    let event = source.next().await;
    assert_eq!(
        (event.pod, event.kind),
        (pod.uid.clone(), LifecycleKind::Changed)
    );
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_may_be_tracked_twice_and_forgotten_twice() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    source.handle.track(&pod.uid, &pod.cgroup);
    let container = pod.container("a");
    let process = container.start(Isolation::OwnPids, "exit 0");
    source.expect_started(&pod, "a").await;
    source.expect_died(&pod, "a").await;
    process.wait();
    source.handle.untrack(&pod.uid);
    source.handle.untrack(&pod.uid);
    pod.container("b")
        .start(Isolation::OwnPids, "exit 0")
        .wait();
    assert!(
        source.events.try_recv().is_err(),
        "a forgotten pod is silent"
    );
    source.handle.track(&pod.uid, &pod.cgroup);
    source.expect_nothing_else(&pod).await;
}
