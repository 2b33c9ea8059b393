//! The next source takes over when one cannot be used, or ends.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind, LifecycleSource, PodTracker};
use swiftlet_model::runtime::{ContainerEventKind, ContainerState, ProcessOf};
use swiftlet_pleg::{PlegOptions, RELIST_INTERVAL_FALLBACK, Source as Kind};

use crate::container::TestPod;
use crate::runtime::FakeRuntime;
use crate::source::Source;

/// On everything but the kernel's events, which a folder without cgroups makes impossible.
fn without_kernel(runtime: &Arc<FakeRuntime>) -> Source {
    let options = PlegOptions {
        cgroup_root: "/proc/self".into(),
        relist_interval: Duration::from_hours(1),
        ..PlegOptions::default()
    };
    Source::started(options, runtime.clone())
}

/// The next death, and who told it.
async fn next_death(source: &mut Source) -> (String, LifecycleSource) {
    loop {
        let event = source.next().await;
        if let LifecycleKind::ContainerDied { container, .. } = event.kind {
            return (container.to_string(), event.source);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_kernel_programs_the_runtimes_stream_tells_and_the_mode_says_why() {
    let (pod, runtime) = (TestPod::new(), Arc::new(FakeRuntime::default()));
    let mut source = without_kernel(&runtime);
    source.expect_source(Kind::Runtime).await;
    let mode = source.handle.mode().to_string();
    assert!(
        mode.contains("event stream; not by kernel programs: /proc/self has"),
        "{mode}"
    );
    runtime.run(&pod, "a", "exit 5");
    let told = next_death(&mut source).await;
    assert_eq!(told, ("a".to_owned(), LifecycleSource::Runtime));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_followed_by_pidfds_and_comes_back() {
    let (pod, runtime) = (TestPod::new(), Arc::new(FakeRuntime::default()));
    let mut source = without_kernel(&runtime);
    source.expect_source(Kind::Runtime).await;
    runtime.hang("c");
    for id in ["a", "b", "c"] {
        runtime.run(&pod, id, "exec sleep 1000");
    }
    runtime.break_streams();
    source.expect_source(Kind::Pidfd).await;
    runtime.kill("a");
    // By pidfd, or by the list that follows the change: once in either case.
    assert_eq!(next_death(&mut source).await.0, "a");
    // Nobody but a list can tell of this one: its process is never told, and no event comes.
    runtime.lose("c");
    let told = next_death(&mut source).await;
    assert_eq!(told, ("c".to_owned(), LifecycleSource::Relist));
    source.expect_source(Kind::Runtime).await;
    runtime.kill("b");
    assert_eq!(next_death(&mut source).await.0, "b");
    assert_eq!(source.handle.stats().died, 3);
    assert!(source.handle.stats().source_changes >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_a_stream_is_not_asked_again() {
    let (pod, runtime) = (TestPod::new(), Arc::new(FakeRuntime::default()));
    runtime.fall_mute();
    let mut source = without_kernel(&runtime);
    source.expect_source(Kind::Pidfd).await;
    runtime.run(&pod, "a", "exec sleep 1000");
    source
        .handle
        .runs(&pod.uid, &"a".into(), ProcessOf::Container);
    runtime.watched("a").await;
    runtime.kill("a");
    let told = next_death(&mut source).await;
    assert_eq!(told, ("a".to_owned(), LifecycleSource::Pidfd));
    assert_eq!(runtime.streams(), 0);
    let mode = source.handle.mode().to_string();
    assert!(mode.contains("the runtime does not serve it"), "{mode}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_the_runtime_hangs_on_is_named_and_delays_no_other() {
    let (pod, runtime) = (TestPod::new(), Arc::new(FakeRuntime::default()));
    runtime.hang("stuck");
    let mut source = Source::with(Kind::Pidfd, runtime.clone());
    source.expect_source(Kind::Pidfd).await;
    runtime.run(&pod, "stuck", "exec sleep 1000");
    source
        .handle
        .runs(&pod.uid, &"stuck".into(), ProcessOf::Container);
    runtime.run(&pod, "well", "exec sleep 1000");
    source
        .handle
        .runs(&pod.uid, &"well".into(), ProcessOf::Container);
    runtime.watched("well").await;
    runtime.kill("well");
    let told = next_death(&mut source).await;
    assert_eq!(told, ("well".to_owned(), LifecycleSource::Pidfd));
    let mut health = source.handle.health();
    let named = health.wait_for(|health| health.degraded.contains_key(&"stuck".into()));
    named.await.expect("the source lives");
    assert_eq!(source.handle.stats().blind_containers, 1);
    assert!(runtime.asked_in_vain() > 0);
    // Its pod alone is listed each second while there is such a container.
    while runtime.lists().1 < 2 {
        tokio::task::yield_now().await;
    }
    runtime.kill("stuck");
    let told = next_death(&mut source).await;
    assert_eq!(told, ("stuck".to_owned(), LifecycleSource::Relist));
    assert!(runtime.lists().0 <= 3, "{:?}", runtime.lists());
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_from_before_the_connection_is_left_to_the_list() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.set(&[("a", ContainerState::Running)]);
    let mut source = Source::with(Kind::Runtime, runtime.clone());
    while runtime.streams() == 0 {
        tokio::task::yield_now().await;
    }
    let old = Timestamp::now() - jiff::SignedDuration::from_secs(60);
    let (kind, uid) = (ContainerEventKind::Stopped, "u".into());
    runtime.tell_at(&uid, "a", kind, None, old);
    source.expect_source(Kind::Runtime).await;
    assert_eq!(
        source.next().await.kind,
        LifecycleKind::Changed,
        "the first list"
    );
    let exit = KernelExit {
        code: 1,
        signal: 0,
        oom_killed: false,
    };
    runtime.tell(&uid, "a", kind, Some(exit));
    let container = "a".into();
    let expected = LifecycleKind::ContainerDied {
        container,
        exit: Some(exit),
    };
    assert_eq!(
        source.next().await.kind,
        expected,
        "the old event was not told"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_sync_loop_makes_no_runtime_wait_and_misses_nothing() {
    let runtime = Arc::new(FakeRuntime::default());
    let mut source = Source::with(Kind::Runtime, runtime.clone());
    source.expect_source(Kind::Runtime).await;
    let count = swiftlet_model::lifecycle::LIFECYCLE_QUEUE_MAX + 100;
    let ids: Vec<_> = (0..count).map(|number| format!("c{number}")).collect();
    let all: Vec<_> = ids
        .iter()
        .map(|id| (id.as_str(), ContainerState::Exited))
        .collect();
    runtime.set(&all);
    for id in &ids {
        runtime.tell(&"u".into(), id, ContainerEventKind::Stopped, None);
    }
    let mut told = std::collections::BTreeSet::new();
    while source.handle.stats().runtime_events < count as u64 {
        tokio::task::yield_now().await;
    }
    assert!(source.handle.stats().queue_full > 0);
    while told.len() < count {
        if let LifecycleKind::ContainerDied { container, .. } = source.next().await.kind {
            assert!(told.insert(container.clone()), "{container} twice");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_takes_over_from_no_source_that_works() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.freeze();
    let source = without_kernel(&runtime);
    source.expect_source(Kind::Pidfd).await;
    while runtime.streams_opened() < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mode = source.handle.mode();
    assert_eq!(mode.source, Kind::Pidfd, "{mode}");
    assert!(mode.to_string().contains("did not answer"), "{mode}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_of_another_pid_namespace_is_listed_and_no_number_of_it_is_believed() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.fall_mute();
    runtime.move_away();
    // Here this number is nobody's.
    runtime.claim("a", i32::MAX.unsigned_abs());
    let mut source = without_kernel(&runtime);
    assert_eq!(source.next().await.kind, LifecycleKind::Changed);
    let mut health = source.handle.health();
    let passed = health.wait_for(|health| health.mode.passed.contains_key(&Kind::Pidfd));
    passed.await.expect("the source lives");
    source.expect_source(Kind::Relist).await;
    assert_eq!(source.handle.stats().died, 0);
    runtime.set(&[("a", ContainerState::Exited)]);
    let told = next_death(&mut source).await;
    assert_eq!(told, ("a".to_owned(), LifecycleSource::Relist));
}

#[tokio::test(start_paused = true)]
async fn what_a_dropped_stream_took_with_it_is_found_within_a_second() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.set(&[
        ("a", ContainerState::Running),
        ("b", ContainerState::Running),
    ]);
    let mut source = Source::with(Kind::Runtime, runtime.clone());
    source.expect_source(Kind::Runtime).await;
    assert_eq!(source.next().await.kind, LifecycleKind::Changed);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let lost = tokio::time::Instant::now();
    runtime.set(&[
        ("a", ContainerState::Exited),
        ("b", ContainerState::Running),
    ]);
    let told = next_death(&mut source).await;
    assert_eq!(told, ("a".to_owned(), LifecycleSource::Relist));
    assert!(lost.elapsed() <= 2 * RELIST_INTERVAL_FALLBACK);
    // The stream has brought something: nobody waits before it any more.
    runtime.set(&[("b", ContainerState::Exited)]);
    runtime.tell(&"u".into(), "b", ContainerEventKind::Stopped, None);
    while source.handle.stats().runtime_events == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(2 * RELIST_INTERVAL_FALLBACK).await;
    let lists = runtime.lists();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(runtime.lists(), lists, "the slow relist alone");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_failed_is_asked_for_again_within_a_second() {
    let runtime = Arc::new(FakeRuntime::default());
    let mut source = Source::with(Kind::Kernel, runtime.clone());
    while source.handle.stats().relists == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(RELIST_INTERVAL_FALLBACK).await;
    runtime.refuse_lists(2);
    runtime.set(&[("a", ContainerState::Running)]);
    let begun = tokio::time::Instant::now();
    source.handle.relist_now();
    assert!(matches!(
        source.next().await.kind,
        LifecycleKind::ContainerStarted { .. }
    ));
    assert!(begun.elapsed() <= 3 * RELIST_INTERVAL_FALLBACK);
}
