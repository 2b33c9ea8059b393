//! What all workers of the node share: the doors, and the limits of the node.

use std::path::PathBuf;
use std::sync::Arc;

use swiftlet_model::pod_board::PodBoard;
use swiftlet_model::runtime::{Runtime, RuntimeError};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::cpu_manager::Cpus;
use crate::events::Recorder;
use crate::housekeeping::logs::RunningLog;
use crate::images::Images;
use crate::keeper::Keeper;
use crate::node_status::NodeFacts;
use crate::options::{Doors, KubeletOptions, Limits, PodSettings};
use crate::resource_options::ResourceOptions;
use crate::status::publish::Gate;
use crate::timeline::Timeline;

/// Probes in flight per node. Far more than hang at the same time on a node that works; each of
/// them has one socket or one process of the runtime.
const PROBES_IN_FLIGHT_MAX: usize = 1024;

/// Sandboxes in flight per node whose last try hung: pods that hang again and again hold their
/// places for minutes, and the others must not wait behind them.
const SANDBOX_RETRIES_MAX: usize = 2;

/// Shared by all workers; nothing in it belongs to one pod.
pub(crate) struct Shared {
    pub(crate) doors: Doors,
    pub(crate) node_name: String,
    pub(crate) node: watch::Receiver<NodeFacts>,
    pub(crate) limits: Limits,
    pub(crate) pods: PodSettings,
    pub(crate) resources: ResourceOptions,
    pub(crate) keeper: Keeper,
    pub(crate) cpus: Cpus,
    pub(crate) log_root: PathBuf,
    pub(crate) timeline: Timeline,
    pub(crate) recorder: Recorder,
    pub(crate) images: Images,
    /// Logs that are being written, as of the last look at the runtime.
    pub(crate) running_logs: watch::Sender<Arc<Vec<RunningLog>>>,
    pub(crate) gate: Gate,
    /// What each worker last said of its pod.
    pub(crate) board: Arc<PodBoard>,
    pub(crate) sandbox_starts: Arc<Semaphore>,
    /// Of those whose last try was not answered in time.
    pub(crate) sandbox_retries: Arc<Semaphore>,
    pub(crate) container_starts: Arc<Semaphore>,
    pub(crate) probes: Semaphore,
    /// Grows when the control plane has listed its pods: the connection is new.
    pub(crate) connected: watch::Sender<u64>,
    /// Grows when the runtime answers again.
    pub(crate) runtime_back: watch::Sender<u64>,
    runtime_name: OnceCell<String>,
}

impl Shared {
    pub(crate) fn new(options: KubeletOptions, doors: Doors) -> Self {
        let recorder = Recorder::new(
            Arc::clone(&doors.control_plane),
            Arc::clone(&doors.clock),
            options.node_name.clone(),
        );
        let images = Images::new(&doors, recorder.clone(), options.limits.image_pulls);
        let cpus = {
            let facts = options.node.borrow();
            let reserved = options.resources.reserved(&facts.capacity).cpu_milli;
            Cpus::new(&options.resources.cpu_manager, facts.cpus.clone(), reserved)
        };
        Self {
            node_name: options.node_name,
            node: options.node,
            limits: options.limits,
            pods: options.pods,
            resources: options.resources,
            keeper: Keeper::new(),
            cpus,
            log_root: options.log_root,
            timeline: options.timeline,
            recorder,
            images,
            running_logs: watch::Sender::default(),
            gate: Gate::new(),
            board: Arc::default(),
            sandbox_starts: Arc::new(Semaphore::new(options.limits.sandbox_starts.max(1))),
            sandbox_retries: Arc::new(Semaphore::new(SANDBOX_RETRIES_MAX)),
            probes: Semaphore::new(PROBES_IN_FLIGHT_MAX),
            container_starts: Arc::new(Semaphore::new(options.limits.container_starts.max(1))),
            connected: watch::Sender::new(0),
            runtime_back: watch::Sender::new(0),
            runtime_name: OnceCell::new(),
            doors,
        }
    }

    /// The runtime's name, the prefix of container ids in the API. Asked for once.
    pub(crate) async fn runtime_name(&self) -> Result<&str, RuntimeError> {
        let runtime: &Arc<dyn Runtime> = &self.doors.runtime;
        let name = self
            .runtime_name
            .get_or_try_init(|| async { runtime.version().await.map(|version| version.name) });
        name.await.map(String::as_str)
    }

    /// The runtime's name, if it has been asked for.
    pub(crate) fn known_runtime_name(&self) -> Option<&str> {
        self.runtime_name.get().map(String::as_str)
    }
}
