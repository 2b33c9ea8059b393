//! What is not a container's first process is not told.

use nix::sys::signal::{Signal, kill};
use swiftlet_model::lifecycle::PodTracker;

use crate::container::{Isolation, TestPod};
use crate::source::Source;

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_added_to_a_container_are_not_told() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let container = pod.container("main");
    let process = container.start(Isolation::OwnPids, "sleep 1000 & wait");
    source.expect_started(&pod, "main").await;
    // As `kubectl exec` and probes do, and as a program with namespaces of its own does.
    container.run("exec true").wait();
    container
        .run("unshare --mount true; unshare --pid --fork true")
        .wait();
    kill(container.init(), Signal::SIGKILL).expect("the container can be killed");
    assert_eq!(source.expect_died(&pod, "main").await.code, 137);
    process.wait();
    // Even an exec that comes after the end starts nothing.
    container.run("unshare --pid --fork true").wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtimes_own_processes_are_not_told() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let container = pod.container("staged");
    // Two stages that exec and end in the cgroup before the container's program is there.
    let process =
        container.run("sh -c 'exit 0'; sh -c 'exit 0'; exec unshare --pid --fork sleep 0");
    source.expect_started(&pod, "staged").await;
    assert_eq!(source.expect_died(&pod, "staged").await.code, 0);
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn untracked_pods_are_silent() {
    let (tracked, stranger) = (TestPod::new(), TestPod::new());
    let mut source = Source::tracking(&tracked);
    let container = stranger.container("c");
    container.start(Isolation::OwnPids, "exit 1").wait();
    container.start(Isolation::HostPids, "exit 2").wait();
    source.expect_nothing_else(&tracked).await;
    assert_eq!(source.handle.stats().died, 1, "the sentinel's alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_cgroup_is_left_to_the_relist() {
    let pod = TestPod::new();
    let source = Source::tracking(&pod);
    let missing = "missing".into();
    source
        .handle
        .track(&missing, "/swiftlet-pleg-test-missing/podmissing");
    assert_eq!(source.handle.stats().blind_pods, 1);
    source.handle.untrack(&missing);
    assert_eq!(source.handle.stats().blind_pods, 0);
}
