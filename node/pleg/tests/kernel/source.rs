//! The event source under test, and a runtime that answers from a list.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerId, PodKey, PodUid, SandboxId};
use swiftlet_model::lifecycle::{
    KernelExit, LifecycleKind, LifecycleReceiver, LifecycleSource, PodLifecycleEvent, PodTracker,
};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerState, ContainerStatus, ExecOutput, Image, ImageAuth,
    ImageFilesystem, LinuxResources, Runtime, RuntimeError, RuntimePod, RuntimeStatus,
    RuntimeVersion, SandboxConfig, SandboxStatus,
};
use swiftlet_pleg::{Bpf, Mode, Pleg, PlegHandle, PlegOptions};

use crate::container::{Isolation, PATIENCE, TestPod};

/// The event source with its receiver.
pub(crate) struct Source {
    pub(crate) handle: PlegHandle,
    pub(crate) events: LifecycleReceiver,
}

impl Source {
    /// On the kernel's events; the runtime has nothing to tell.
    pub(crate) fn kernel() -> Self {
        let options = PlegOptions {
            relist_interval: Duration::from_hours(1),
            ..Default::default()
        };
        let source = Self::with(options, Arc::default());
        assert!(
            matches!(source.handle.mode(), Mode::Bpf),
            "{:?}",
            source.handle.mode()
        );
        source
    }

    /// On the kernel's events, with the pod tracked.
    pub(crate) fn tracking(pod: &TestPod) -> Self {
        let source = Self::kernel();
        source.handle.track(&pod.uid, &pod.cgroup);
        assert_eq!(source.handle.stats().blind_pods, 0);
        source
    }

    pub(crate) fn relist_alone(runtime: Arc<ListRuntime>) -> Self {
        Self::with(
            PlegOptions {
                bpf: Bpf::Off,
                ..Default::default()
            },
            runtime,
        )
    }

    fn with(options: PlegOptions, runtime: Arc<ListRuntime>) -> Self {
        let (handle, events) = Pleg::start(options, runtime);
        Self { handle, events }
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

/// A runtime of which only the lists work.
#[derive(Default)]
pub(crate) struct ListRuntime {
    pods: Mutex<Vec<RuntimePod>>,
}

impl ListRuntime {
    /// From now on the runtime has one pod with these containers.
    pub(crate) fn set(&self, containers: &[(&str, ContainerState)]) {
        let pod = PodKey {
            namespace: "n".into(),
            name: "p".into(),
            uid: PodUid::from("u"),
        };
        let containers = containers
            .iter()
            .map(|(id, state)| status(id, state.clone()))
            .collect();
        let pod = RuntimePod {
            pod,
            sandboxes: Vec::new(),
            containers,
        };
        *self
            .pods
            .lock()
            .expect("no test panics while it holds this") = vec![pod];
    }
}

fn status(id: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        id: id.into(),
        name: "c".into(),
        sandbox: "s".into(),
        attempt: 0,
        state,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        exit: None,
        image: String::new(),
        image_id: String::new(),
        spec_hash: None,
    }
}

fn refuse<T: Send + 'static>(call: &'static str) -> BoxFuture<'static, Result<T, RuntimeError>> {
    Box::pin(async move {
        Err(RuntimeError::Refused {
            call,
            message: "only lists".into(),
        })
    })
}

impl Runtime for ListRuntime {
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>> {
        refuse("version")
    }
    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>> {
        refuse("status")
    }
    fn run_sandbox<'a>(
        &'a self,
        _: &'a SandboxConfig,
        _: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>> {
        refuse("run_sandbox")
    }
    fn stop_sandbox<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("stop_sandbox")
    }
    fn remove_sandbox<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_sandbox")
    }
    fn sandbox_status<'a>(
        &'a self,
        _: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>> {
        refuse("sandbox_status")
    }
    fn create_container<'a>(
        &'a self,
        _: &'a SandboxId,
        _: &'a ContainerConfig,
        _: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>> {
        refuse("create_container")
    }
    fn start_container<'a>(
        &'a self,
        _: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("start_container")
    }
    fn stop_container<'a>(
        &'a self,
        _: &'a ContainerId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("stop_container")
    }
    fn remove_container<'a>(
        &'a self,
        _: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_container")
    }
    fn container_status<'a>(
        &'a self,
        _: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>> {
        refuse("container_status")
    }
    fn pod<'a>(&'a self, _: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>> {
        refuse("pod")
    }
    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>> {
        let pods = self
            .pods
            .lock()
            .expect("no test panics while it holds this")
            .clone();
        Box::pin(async move { Ok(pods) })
    }
    fn exec_sync<'a>(
        &'a self,
        _: &'a ContainerId,
        _: &'a [String],
        _: Duration,
    ) -> BoxFuture<'a, Result<ExecOutput, RuntimeError>> {
        refuse("exec_sync")
    }
    fn update_resources<'a>(
        &'a self,
        _: &'a ContainerId,
        _: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("update_resources")
    }
    fn reopen_log<'a>(&'a self, _: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("reopen_log")
    }
    fn image<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>> {
        refuse("image")
    }
    fn list_images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        refuse("list_images")
    }
    fn pull_image<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a ImageAuth>,
        _: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        refuse("pull_image")
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_image")
    }
    fn image_filesystem(&self) -> BoxFuture<'_, Result<Option<ImageFilesystem>, RuntimeError>> {
        refuse("image_filesystem")
    }
}
