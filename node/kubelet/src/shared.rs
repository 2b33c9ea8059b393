//! What all workers of the node share: the doors, and the limits of the node.

use std::path::PathBuf;
use std::sync::Arc;

use swiftlet_model::runtime::{Runtime, RuntimeError};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::events::Recorder;
use crate::images::Images;
use crate::node_status::NodeFacts;
use crate::options::{Doors, KubeletOptions, Limits};
use crate::status::publish::Gate;
use crate::timeline::Timeline;

/// Shared by all workers; nothing in it belongs to one pod.
pub(crate) struct Shared {
    pub(crate) doors: Doors,
    pub(crate) node_name: String,
    pub(crate) node: watch::Receiver<NodeFacts>,
    pub(crate) limits: Limits,
    pub(crate) log_root: PathBuf,
    pub(crate) timeline: Timeline,
    pub(crate) recorder: Recorder,
    pub(crate) images: Images,
    pub(crate) gate: Gate,
    pub(crate) sandbox_starts: Arc<Semaphore>,
    pub(crate) container_starts: Arc<Semaphore>,
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
        let images = Images::new(
            Arc::clone(&doors.runtime),
            Arc::clone(&doors.clock),
            recorder.clone(),
        );
        Self {
            node_name: options.node_name,
            node: options.node,
            limits: options.limits,
            log_root: options.log_root,
            timeline: options.timeline,
            recorder,
            images,
            gate: Gate::new(),
            sandbox_starts: Arc::new(Semaphore::new(options.limits.sandbox_starts.max(1))),
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
