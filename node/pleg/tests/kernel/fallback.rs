//! Without the kernel's events the runtime's lists tell the same story, later and without codes.

use std::sync::Arc;

use swiftlet_model::lifecycle::{LifecycleKind, LifecycleSource, PodTracker};
use swiftlet_model::runtime::ContainerState::{Created, Exited, Running};
use swiftlet_pleg::RELIST_INTERVAL_FALLBACK;
use tokio::time::Instant;

use crate::runtime::FakeRuntime;
use crate::source::Source;

#[tokio::test(start_paused = true)]
async fn the_relist_alone_tells_starts_and_deaths_once() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.set(&[("a", Created)]);
    let mut source = Source::relist_alone(runtime.clone());
    let mode = source.handle.mode().to_string();
    assert!(mode.ends_with("not by pidfds: switched off"), "{mode}");
    source.handle.track(&"u".into(), "/kubepods/podu");

    assert_eq!(
        source.next().await.kind,
        LifecycleKind::Changed,
        "the first list is one hint"
    );
    runtime.set(&[("a", Running)]);
    let started = source.next().await;
    assert_eq!(started.source, LifecycleSource::Relist);
    assert_eq!(
        started.kind,
        LifecycleKind::ContainerStarted {
            container: "a".into()
        }
    );
    runtime.set(&[("a", Exited), ("b", Created)]);
    let died = LifecycleKind::ContainerDied {
        container: "a".into(),
        exit: None,
    };
    assert_eq!(source.next().await.kind, died);
    assert_eq!(source.next().await.kind, LifecycleKind::Changed);
    runtime.set(&[("a", Exited)]);
    assert_eq!(
        source.next().await.kind,
        LifecycleKind::Changed,
        "b is gone, a is old news"
    );
}

#[tokio::test(start_paused = true)]
async fn the_relist_alone_looks_every_second() {
    let runtime = Arc::new(FakeRuntime::default());
    let mut source = Source::relist_alone(runtime.clone());
    while source.handle.stats().relists == 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    runtime.set(&[("a", Running)]);
    source.next().await;
    assert!(
        begun.elapsed() <= RELIST_INTERVAL_FALLBACK,
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn containers_that_ended_while_the_agent_was_away_are_a_hint_at_start() {
    let runtime = Arc::new(FakeRuntime::default());
    runtime.set(&[("a", Exited)]);
    let mut source = Source::relist_alone(runtime);
    let event = source.next().await;
    assert_eq!(
        (event.pod.as_str(), event.kind),
        ("u", LifecycleKind::Changed)
    );
}
