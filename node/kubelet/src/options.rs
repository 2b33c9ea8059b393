//! What the kubelet is told at its start, and the doors that it uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_model::cgroups::Cgroups;
use swiftlet_model::checkpoints::Checkpoints;
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::ControlPlane;
use swiftlet_model::credentials::NodeCredentials;
use swiftlet_model::lifecycle::PodTracker;
use swiftlet_model::logs::ContainerLogs;
use swiftlet_model::node_stats::NodeStats;
use swiftlet_model::probes::Probes;
use swiftlet_model::runtime::Runtime;
use swiftlet_model::shutdown::ShutdownSignals;
use swiftlet_model::volumes::{PodFiles, Volumes};
use tokio::sync::watch;

use crate::housekeeping::logs::LogPolicy;
use crate::images::collector::IMAGE_GC_PERIOD;
use crate::images::gc::ImageGcPolicy;
use crate::kuberuntime::backoff::BACKOFF_MAX;
use crate::node_status::NodeFacts;
use crate::node_status::heartbeat::Heartbeat;
use crate::resource_options::ResourceOptions;
use crate::timeline::Timeline;

/// Sandboxes that are being made at the same time on one node: more only queue in the runtime.
pub const SANDBOX_STARTS_MAX: usize = 8;
/// Containers that are being created and started at the same time on one node. Apart from the
/// sandboxes, so that a pod that is nearly up does not wait behind those that have just come.
pub const CONTAINER_STARTS_MAX: usize = 8;
/// The runtime makes a sandbox within this time, its network included (kubelet's
/// `--runtime-request-timeout`, doubled as for all long calls).
pub const SANDBOX_LIMIT: Duration = Duration::from_mins(4);
/// Pulls at the same time on one node; the runtime shares layers between them.
pub const IMAGE_PULLS_MAX: usize = 4;
/// How often orphans are looked for.
pub const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(10);

/// Limits that a user may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`SANDBOX_STARTS_MAX`].
    pub sandbox_starts: usize,
    /// See [`CONTAINER_STARTS_MAX`].
    pub container_starts: usize,
    /// See [`SANDBOX_LIMIT`].
    pub sandbox_limit: Duration,
    /// See [`HOUSEKEEPING_PERIOD`].
    pub housekeeping_period: Duration,
    /// Longest wait of a crash loop, see [`BACKOFF_MAX`].
    pub crash_loop_backoff_max: Duration,
    /// `maxParallelImagePulls`; 1 for `serializeImagePulls`. See [`IMAGE_PULLS_MAX`].
    pub image_pulls: usize,
    /// When unused images are removed.
    pub image_gc: ImageGcPolicy,
    /// See [`IMAGE_GC_PERIOD`].
    pub image_gc_period: Duration,
    /// How large container logs become.
    pub logs: LogPolicy,
    /// When the node says that it is alive.
    pub heartbeat: Heartbeat,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sandbox_starts: SANDBOX_STARTS_MAX,
            container_starts: CONTAINER_STARTS_MAX,
            sandbox_limit: SANDBOX_LIMIT,
            housekeeping_period: HOUSEKEEPING_PERIOD,
            crash_loop_backoff_max: BACKOFF_MAX,
            image_pulls: IMAGE_PULLS_MAX,
            image_gc: ImageGcPolicy::default(),
            image_gc_period: IMAGE_GC_PERIOD,
            logs: LogPolicy::default(),
            heartbeat: Heartbeat::default(),
        }
    }
}

/// How this node treats its pods: what `KubeletConfiguration` says of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// `seccompDefault`: a container without a profile gets the runtime's.
    pub seccomp_default: bool,
    /// Folder of the node's seccomp profiles: `seccomp` below the kubelet's own.
    pub seccomp_root: PathBuf,
    /// `allowedUnsafeSysctls`; a name that ends with `*` stands for all that begin so.
    pub allowed_unsafe_sysctls: Vec<String>,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            seccomp_default: false,
            seccomp_root: PathBuf::from("/var/lib/kubelet/seccomp"),
            allowed_unsafe_sysctls: Vec::new(),
        }
    }
}

/// What the kubelet is told at its start.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// The node's name in the API.
    pub node_name: String,
    /// What the node is and how it is; the sender may change it at any time.
    pub node: watch::Receiver<NodeFacts>,
    /// Limits.
    pub limits: Limits,
    /// How this node treats its pods.
    pub pods: PodSettings,
    /// How it shares out what it has.
    pub resources: ResourceOptions,
    /// Folder of the pods' logs, as the runtime sees it (`/var/log/pods`).
    pub log_root: PathBuf,
    /// Where the steps of pod starts are recorded.
    pub timeline: Timeline,
}

/// The doors behind which the world stands.
#[derive(Clone)]
pub struct Doors {
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The control plane.
    pub control_plane: Arc<dyn ControlPlane>,
    /// Who watches pods.
    pub tracker: Arc<dyn PodTracker>,
    /// Volumes.
    pub volumes: Arc<dyn Volumes>,
    /// Files of pods beside their volumes.
    pub files: Arc<dyn PodFiles>,
    /// Container logs.
    pub logs: Arc<dyn ContainerLogs>,
    /// Pod cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// What the node has left, and who uses it.
    pub stats: Arc<dyn NodeStats>,
    /// The machine's word that it is being switched off.
    pub shutdown: Arc<dyn ShutdownSignals>,
    /// What the node remembers over a restart of the agent.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Credentials for registries that the node itself has.
    pub credentials: Arc<dyn NodeCredentials>,
    /// Requests to what runs in pods.
    pub probes: Arc<dyn Probes>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}
