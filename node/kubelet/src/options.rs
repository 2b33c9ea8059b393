//! What the kubelet is told at its start, and the doors that it uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_model::cgroups::Cgroups;
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::ControlPlane;
use swiftlet_model::lifecycle::PodTracker;
use swiftlet_model::runtime::Runtime;
use swiftlet_model::volumes::Volumes;
use tokio::sync::watch;

use crate::node_status::NodeFacts;
use crate::timeline::Timeline;

/// Sandboxes that are being made at the same time on one node: more only queue in the runtime.
pub const SANDBOX_STARTS_MAX: usize = 8;
/// Containers that are being created and started at the same time on one node. Apart from the
/// sandboxes, so that a pod that is nearly up does not wait behind those that have just come.
pub const CONTAINER_STARTS_MAX: usize = 8;
/// The runtime makes a sandbox within this time, its network included (kubelet's
/// `--runtime-request-timeout`, doubled as for all long calls).
pub const SANDBOX_LIMIT: Duration = Duration::from_mins(4);
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sandbox_starts: SANDBOX_STARTS_MAX,
            container_starts: CONTAINER_STARTS_MAX,
            sandbox_limit: SANDBOX_LIMIT,
            housekeeping_period: HOUSEKEEPING_PERIOD,
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
    /// Pod cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}
