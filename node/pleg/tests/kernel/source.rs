//! The event source under test.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use swiftlet_model::ids::ContainerId;
use swiftlet_model::lifecycle::{
    KernelExit, LifecycleKind, LifecycleReceiver, LifecycleSource, PodLifecycleEvent, PodTracker,
};
use swiftlet_pleg::{Pleg, PlegHandle, PlegOptions, Source as Kind};

use crate::container::{Isolation, PATIENCE, TestPod};
use crate::runtime::FakeRuntime;

/// The event source with its receiver.
pub(crate) struct Source {
    pub(crate) handle: PlegHandle,
    pub(crate) events: LifecycleReceiver,
}

impl Source {
    /// On the kernel's events; the runtime has nothing to tell.
    pub(crate) fn kernel() -> Self {
        let source = Self::with(Kind::Kernel, Arc::default());
        let mode = source.handle.mode();
        assert_eq!(mode.source, Kind::Kernel, "{mode}");
        source
    }

    /// On the kernel's events, with the pod tracked.
    pub(crate) fn tracking(pod: &TestPod) -> Self {
        let source = Self::kernel();
        source.handle.track(&pod.uid, &pod.cgroup);
        assert_eq!(source.handle.stats().blind_pods, 0);
        source
    }

    pub(crate) fn relist_alone(runtime: Arc<FakeRuntime>) -> Self {
        Self::with(Kind::Relist, runtime)
    }

    /// On one kind of source, with a relist behind it that does not help.
    pub(crate) fn with(only: Kind, runtime: Arc<FakeRuntime>) -> Self {
        let options = PlegOptions {
            only: Some(only),
            relist_interval: Duration::from_hours(1),
            ..PlegOptions::default()
        };
        Self::started(options, runtime)
    }

    pub(crate) fn started(options: PlegOptions, runtime: Arc<FakeRuntime>) -> Self {
        let (handle, events) = Pleg::start(options, runtime);
        Self { handle, events }
    }

    /// Waits until events come from there.
    pub(crate) async fn expect_source(&self, kind: Kind) {
        let mut health = self.handle.health();
        let used = health.wait_for(|health| health.mode.source == kind);
        let used = tokio::time::timeout(PATIENCE, used).await;
        used.expect("it is used in time").expect("the source lives");
    }

    pub(crate) async fn next(&mut self) -> PodLifecycleEvent {
        let next = tokio::time::timeout(PATIENCE, self.events.recv()).await;
        next.expect("an event comes in time")
            .expect("the source lives")
    }

    /// The next event is the kernel's word that the container runs.
    pub(crate) async fn expect_started(&mut self, pod: &TestPod, container: &str) {
        let event = self.next().await;
        assert_eq!(
            (&event.pod, event.source),
            (&pod.uid, LifecycleSource::Kernel)
        );
        let container = ContainerId::from(container);
        assert_eq!(event.kind, LifecycleKind::ContainerStarted { container });
    }

    /// The next event is the kernel's word that the container ended; answers how.
    pub(crate) async fn expect_died(&mut self, pod: &TestPod, container: &str) -> KernelExit {
        let event = self.next().await;
        assert_eq!(
            (&event.pod, event.source),
            (&pod.uid, LifecycleSource::Kernel)
        );
        let age = Timestamp::now().duration_since(event.at).abs();
        assert!(
            age < jiff::SignedDuration::from_secs(5),
            "the time of death is off by {age:?}"
        );
        match event.kind {
            LifecycleKind::ContainerDied {
                container: died,
                exit: Some(exit),
            } => {
                assert_eq!(died.as_str(), container);
                exit
            }
            other => panic!("{container} should have died, not: {other:?}"),
        }
    }

    /// Nothing else was told: a last container's events come next. The ring keeps the kernel's
    /// order.
    pub(crate) async fn expect_nothing_else(&mut self, pod: &TestPod) {
        let sentinel = pod.container("sentinel");
        let process = sentinel.start(Isolation::OwnPids, "exit 0");
        self.expect_started(pod, "sentinel").await;
        self.expect_died(pod, "sentinel").await;
        process.wait();
        assert!(self.events.try_recv().is_err());
        let stats = self.handle.stats();
        assert_eq!(
            (stats.ring_full, stats.map_full, stats.strangers),
            (0, 0, 0)
        );
    }
}
