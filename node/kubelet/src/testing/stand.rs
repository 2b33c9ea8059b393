//! A kubelet over the fakes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::{CONTROL_QUEUE_MAX, ControlPlaneEvent};
use swiftlet_model::ids::{ContainerId, PodKey, PodUid};
use swiftlet_model::lifecycle::{
    KernelExit, LIFECYCLE_QUEUE_MAX, LifecycleKind, LifecycleSource, PodLifecycleEvent,
};
use swiftlet_model::sources::{SOURCES_QUEUE_MAX, SourcePods};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cpu_manager::{Cpu, CpuManagerOptions, CpuPolicy, CpuSet};
use crate::eviction::{Signal, Value};
use crate::node_shutdown::ShutdownOptions;
use crate::node_status::Amount;
use crate::testing::control_plane::FakeControlPlane;
use crate::testing::node::{FakeNode, TestClock};
use crate::testing::runtime::FakeRuntime;
use crate::{
    Doors, Kubelet, KubeletOptions, KubeletReport, Limits, NodeFacts, PodSettings, ResourceOptions,
    Timeline,
};

/// A kubelet, its fakes, and the senders that drive it.
pub(crate) struct Stand {
    pub(crate) runtime: Arc<FakeRuntime>,
    pub(crate) control_plane: Arc<FakeControlPlane>,
    pub(crate) node: Arc<FakeNode>,
    pub(crate) clock: Arc<TestClock>,
    control: mpsc::Sender<ControlPlaneEvent>,
    pub(crate) sources: mpsc::Sender<SourcePods>,
    lifecycle: mpsc::Sender<PodLifecycleEvent>,
    shutdown: CancellationToken,
    task: JoinHandle<KubeletReport>,
    pub(crate) facts: watch::Sender<NodeFacts>,
}

impl Stand {
    /// A kubelet that has received an empty list of pods.
    pub(crate) async fn new() -> Self {
        let runtime = Arc::new(FakeRuntime::new(Duration::from_millis(10)));
        let control_plane = Arc::new(FakeControlPlane::new());
        let (node, clock) = (Arc::new(FakeNode::default()), Arc::new(TestClock::new()));
        Self::over(runtime, control_plane, node, clock).await
    }

    /// A kubelet that gives out these four CPUs one by one.
    pub(crate) async fn with_static_cpus() -> Self {
        let runtime = Arc::new(FakeRuntime::new(Duration::from_millis(10)));
        let control_plane = Arc::new(FakeControlPlane::new());
        let (node, clock) = (Arc::new(FakeNode::default()), Arc::new(TestClock::new()));
        let cpu = |id| Cpu {
            id,
            core: id,
            socket: 0,
        };
        *node.cpus.lock().unwrap() = (0..4).map(cpu).collect();
        Self::over(runtime, control_plane, node, clock).await
    }

    async fn over(
        runtime: Arc<FakeRuntime>,
        control_plane: Arc<FakeControlPlane>,
        node: Arc<FakeNode>,
        clock: Arc<TestClock>,
    ) -> Self {
        let stand = Self::start(runtime, control_plane, node, clock);
        stand.turn(Duration::from_millis(1)).await;
        stand.send(ControlPlaneEvent::Pods(Vec::new())).await;
        stand
    }

    /// A kubelet whose control plane cannot be reached.
    pub(crate) async fn unconnected() -> Self {
        let runtime = Arc::new(FakeRuntime::new(Duration::from_millis(10)));
        let control_plane = Arc::new(FakeControlPlane::new());
        control_plane.told.lock().unwrap().connected = false;
        control_plane.told.lock().unwrap().reached = false;
        let (node, clock) = (Arc::new(FakeNode::default()), Arc::new(TestClock::new()));
        let stand = Self::start(runtime, control_plane, node, clock);
        stand.turn(Duration::from_millis(1)).await;
        stand
    }

    fn start(
        runtime: Arc<FakeRuntime>,
        control_plane: Arc<FakeControlPlane>,
        node: Arc<FakeNode>,
        clock: Arc<TestClock>,
    ) -> Self {
        let (control, control_out) = mpsc::channel(CONTROL_QUEUE_MAX);
        let (lifecycle, lifecycle_out) = mpsc::channel(LIFECYCLE_QUEUE_MAX);
        let (facts, facts_out) = watch::channel(NodeFacts {
            hostname: "n1".into(),
            internal_ips: vec!["10.0.0.1".into()],
            capacity: Amount {
                cpu_milli: 4000,
                memory_bytes: 1 << 32,
                ..Amount::default()
            },
            pods_max: 10,
            cpus: node.cpus.lock().unwrap().clone(),
            ..NodeFacts::default()
        });
        let options = KubeletOptions {
            node_name: "n1".into(),
            node: facts_out,
            limits: Limits::default(),
            pods: PodSettings {
                cluster_dns: vec!["10.96.0.10".into()],
                cluster_domain: "cluster.local".into(),
                ..PodSettings::default()
            },
            resources: resources(&node),
            log_root: PathBuf::from("/logs"),
            timeline: Timeline::default(),
        };
        let doors = Doors {
            runtime: Arc::clone(&runtime) as _,
            control_plane: Arc::clone(&control_plane) as _,
            tracker: Arc::clone(&node) as _,
            volumes: Arc::clone(&node) as _,
            files: Arc::clone(&node) as _,
            logs: Arc::clone(&node.log_files) as _,
            cgroups: Arc::clone(&node) as _,
            stats: Arc::clone(&node.stats) as _,
            checkpoints: Arc::clone(&node.checkpoints) as _,
            shutdown: Arc::clone(&node.shutdown) as _,
            credentials: Arc::clone(&node.credentials) as _,
            probes: Arc::clone(&node.probes) as _,
            clock: Arc::clone(&clock) as _,
        };
        let shutdown = CancellationToken::new();
        let (sources, lists) = mpsc::channel(SOURCES_QUEUE_MAX);
        let kubelet = Kubelet::new(options, doors).with_sources(Vec::new(), lists);
        let task = tokio::spawn(kubelet.run(control_out, lifecycle_out, shutdown.clone()));
        Self {
            runtime,
            control_plane,
            node,
            clock,
            control,
            sources,
            lifecycle,
            shutdown,
            task,
            facts,
        }
    }

    /// Ends the kubelet and starts another over the same node.
    pub(crate) async fn restart(self) -> Self {
        self.shutdown.cancel();
        self.task.await.unwrap();
        let told = &self.control_plane.told;
        told.lock().unwrap().reached = false;
        let next = Self::start(self.runtime, self.control_plane, self.node, self.clock);
        next.turn(Duration::from_millis(1)).await;
        next
    }

    /// Ends the kubelet on the spot, with whatever it was doing, and starts another.
    pub(crate) async fn crash(self) -> Self {
        self.task.abort();
        assert!(self.task.await.is_err());
        let told = &self.control_plane.told;
        told.lock().unwrap().reached = false;
        let next = Self::start(self.runtime, self.control_plane, self.node, self.clock);
        next.turn(Duration::from_millis(1)).await;
        next
    }

    /// Lets time pass.
    pub(crate) async fn turn(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) async fn seconds(&self, seconds: u64) {
        self.turn(Duration::from_secs(seconds)).await;
    }

    pub(crate) async fn send(&self, event: ControlPlaneEvent) {
        self.control.send(event).await.unwrap();
    }

    /// The API's object: the pod with the status that was stored last.
    pub(crate) fn stored(&self, pod: &Pod) -> Arc<Pod> {
        let status = self.control_plane.status(PodKey::of(pod).uid.as_str());
        Arc::new(Pod {
            status: status.or_else(|| pod.status.clone()),
            ..pod.clone()
        })
    }

    pub(crate) async fn upsert(&self, pod: &Pod) {
        self.send(ControlPlaneEvent::PodUpsert(self.stored(pod)))
            .await;
    }

    pub(crate) async fn list(&self, pods: &[&Pod]) {
        let all = pods.iter().map(|pod| self.stored(pod)).collect();
        self.send(ControlPlaneEvent::Pods(all)).await;
    }

    /// The API's object of a pod that is being deleted.
    pub(crate) fn deleting(&self, pod: &Pod, grace_s: i64) -> Pod {
        let mut pod = pod.clone();
        let end = self.clock.timestamp() + Duration::from_secs(grace_s.unsigned_abs());
        pod.metadata.deletion_timestamp = Some(Time(end));
        pod.metadata.deletion_grace_period_seconds = Some(grace_s);
        pod
    }

    /// Deletes a pod with this grace.
    pub(crate) async fn delete(&self, pod: &Pod, grace_s: i64) {
        self.upsert(&self.deleting(pod, grace_s)).await;
    }

    /// A container dies, and the kernel says so.
    pub(crate) async fn die(&self, uid: &str, id: &ContainerId, code: i32) {
        if self.runtime.kill(id, code) {
            let exit = Some(KernelExit {
                code,
                signal: 0,
                oom_killed: false,
            });
            self.hint(
                uid,
                LifecycleKind::ContainerDied {
                    container: id.clone(),
                    exit,
                },
            )
            .await;
        }
    }

    pub(crate) async fn hint(&self, uid: &str, kind: LifecycleKind) {
        let at: Timestamp = self.clock.timestamp();
        let pod = PodUid::from(uid);
        let event = PodLifecycleEvent {
            pod,
            kind,
            at,
            source: LifecycleSource::Kernel,
        };
        self.lifecycle.send(event).await.unwrap();
    }

    pub(crate) fn phase(&self, uid: &str) -> Option<String> {
        self.control_plane
            .status(uid)
            .and_then(|status| status.phase)
    }

    pub(crate) fn is_ready(&self, uid: &str) -> bool {
        let status = self.control_plane.status(uid).unwrap_or_default();
        let mut all = status.conditions.iter().flatten();
        all.any(|one| one.type_ == "Ready" && one.status == "True")
    }

    /// `reason` of the waiting or terminated state of the first container.
    pub(crate) fn reason(&self, uid: &str) -> Option<String> {
        let status = self.control_plane.status(uid)?;
        let state = status.container_statuses?.first()?.state.clone()?;
        let waiting = state.waiting.and_then(|waiting| waiting.reason);
        waiting.or(state.terminated.and_then(|ended| ended.reason))
    }
}

/// A pod with an emptyDir `data` of at most 1 MiB.
pub(crate) fn with_empty_dir(uid: &str) -> Pod {
    let mut pod = pod(uid);
    pod.spec.as_mut().unwrap().volumes = Some(vec![Volume {
        name: "data".into(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity("1Mi".into())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }]);
    pod
}

/// A pod of this node with one container `main`.
pub(crate) fn pod(uid: &str) -> Pod {
    let container = Container {
        name: "main".into(),
        image: Some("busybox".into()),
        image_pull_policy: Some("IfNotPresent".into()),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            namespace: Some("default".into()),
            name: Some(uid.to_owned()),
            uid: Some(uid.to_owned()),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some("n1".into()),
            containers: vec![container],
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// What the node keeps free. Of images inodes alone: their own collector is looked at by other
/// tests.
fn resources(node: &FakeNode) -> ResourceOptions {
    let seconds = Duration::from_secs;
    let cpu_manager = if node.cpus.lock().unwrap().is_empty() {
        CpuManagerOptions::default()
    } else {
        CpuManagerOptions {
            policy: CpuPolicy::Static,
            reserved: CpuSet([0].into()),
        }
    };
    let mut options = ResourceOptions {
        cpu_manager,
        shutdown: ShutdownOptions::two_groups(seconds(30), seconds(10)),
        ..ResourceOptions::default()
    };
    for one in &mut options.eviction.thresholds {
        if one.signal == Signal::ImagefsAvailable {
            one.signal = Signal::ImagefsInodesFree;
            one.value = Value::Amount(1);
        }
    }
    options
}
