//! Containers that ran before the agent did.

use nix::sys::signal::{Signal, kill};

use crate::container::{Isolation, TestPod};
use crate::source::Source;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_exit_of_a_running_container_is_told() {
    let pod = TestPod::new();
    let mut before = Source::tracking(&pod);
    let own = pod.container("own");
    let own_process = own.start(Isolation::OwnPids, "sleep 1000 & wait");
    before.expect_started(&pod, "own").await;
    let host = pod.container("host");
    let host_process = host.start(Isolation::HostPids, "sleep 1000 & wait");
    before.expect_started(&pod, "host").await;
    drop(before);

    let mut after = Source::tracking(&pod);
    kill(own.init(), Signal::SIGKILL).expect("the container can be killed");
    assert_eq!(after.expect_died(&pod, "own").await.code, 137);
    kill(host_process.id(), Signal::SIGTERM).expect("the container can be ended");
    assert_eq!(after.expect_died(&pod, "host").await.code, 143);
    own_process.wait();
    host_process.wait();
    after.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_made_but_not_started_is_adopted_too() {
    let pod = TestPod::new();
    let container = pod.container("made");
    let mut source = Source::tracking(&pod);
    let process = container.start(Isolation::OwnPids, "exit 4");
    source.expect_started(&pod, "made").await;
    assert_eq!(source.expect_died(&pod, "made").await.code, 4);
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_moved_inside_is_adopted_with_its_inner_cgroups() {
    let pod = TestPod::new();
    let container = pod.container("nested");
    let inner = container.directory.join("inner");
    let script = format!(
        "mkdir {0}; echo 0 > {0}/cgroup.procs; sleep 1000 & wait",
        inner.display()
    );
    let mut before = Source::tracking(&pod);
    let process = container.start(Isolation::HostPids, &script);
    before.expect_started(&pod, "nested").await;
    while std::fs::read_to_string(inner.join("cgroup.procs"))
        .unwrap_or_default()
        .is_empty()
    {
        std::thread::yield_now();
    }
    drop(before);
    let mut after = Source::tracking(&pod);
    kill(process.id(), Signal::SIGTERM).expect("the container can be ended");
    assert_eq!(after.expect_died(&pod, "nested").await.code, 143);
    process.wait();
    after.expect_nothing_else(&pod).await;
}
