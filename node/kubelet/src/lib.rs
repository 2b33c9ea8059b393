//! What a node decides about its pods; no I/O.
//!
//! ```text
//! control plane ─▶ config ─▶ sync loop ─▶ pod worker ─▶ actions (pure) ─▶ execute ─▶ doors
//! kernel hints ──────────────────┘            │
//!                                             └─▶ status: generate (pure) ─▶ publish
//! ```
//!
//! Everything outside is reached through the doors of [`Doors`].
#![forbid(unsafe_code)]

use std::sync::Arc;

use swiftlet_model::control_plane::ControlPlaneReceiver;
use swiftlet_model::lifecycle::LifecycleReceiver;
use swiftlet_model::pod_board::PodBoard;
use swiftlet_model::sources::{Source, SourceReceiver};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod admission;
pub mod cgroups;
pub mod config;
pub mod cpu_manager;
mod events;
pub mod eviction;
mod housekeeping;
mod images;
mod keeper;
pub mod kuberuntime;
mod last_known;
mod mirror;
pub mod node_shutdown;
pub mod node_status;
mod options;
pub mod pod_manager;
mod pod_worker;
pub mod prober;
mod resize;
mod resource_options;
pub mod resources;
mod shared;
pub mod status;
mod sync_loop;
mod system_oom;
mod timeline;
mod volumes;

#[cfg(test)]
mod testing;

pub use crate::housekeeping::logs::LogPolicy;
pub use crate::images::collector::IMAGE_GC_PERIOD;
pub use crate::images::gc::ImageGcPolicy;
pub use crate::node_status::NodeFacts;
pub use crate::node_status::heartbeat::Heartbeat;
pub use crate::options::{
    CONTAINER_STARTS_MAX, Doors, HOUSEKEEPING_PERIOD, IMAGE_PULLS_MAX, KubeletOptions, Limits,
    PodSettings, SANDBOX_LIMIT, SANDBOX_STARTS_MAX,
};
pub use crate::resource_options::ResourceOptions;
pub use crate::sync_loop::KubeletReport;
pub use crate::timeline::{Timeline, TimelinePhase, TimelineRecord};

use crate::node_status::heartbeat;
use crate::shared::Shared;
use crate::sync_loop::{Inputs, SyncLoop};

/// The kubelet of one node.
pub struct Kubelet {
    shared: Arc<Shared>,
    inputs: Inputs,
}

impl Kubelet {
    /// A kubelet that has not begun to work.
    pub fn new(options: KubeletOptions, doors: Doors) -> Self {
        let (mirrors, seen) = watch::channel(mirror::View::default());
        let door = Arc::new(mirror::Door::new(Arc::clone(&doors.control_plane), seen));
        let control_plane = Arc::clone(&door) as _;
        let doors = Doors {
            control_plane,
            ..doors
        };
        let (_, sources) = mpsc::channel(1);
        Self {
            shared: Arc::new(Shared::new(options, doors)),
            inputs: Inputs {
                expected: Vec::new(),
                sources,
                mirrors,
                door,
            },
        }
    }

    /// With other sources of pods than the control plane: all of them speak on `lists`.
    #[must_use]
    pub fn with_sources(mut self, expected: Vec<Source>, lists: SourceReceiver) -> Self {
        self.inputs.expected = expected;
        self.inputs.sources = lists;
        self
    }

    /// The pods of this node with their newest statuses.
    pub fn board(&self) -> Arc<PodBoard> {
        Arc::clone(&self.shared.board)
    }

    /// Works until `shutdown`; running containers go on after that.
    pub async fn run(
        self,
        control: ControlPlaneReceiver,
        lifecycle: LifecycleReceiver,
        shutdown: CancellationToken,
    ) -> KubeletReport {
        self.shared.cpus.load(&self.shared).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeat::renew_lease(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        tasks.spawn(keeper::tasks(Arc::clone(&self.shared), shutdown.clone()));
        tasks.spawn(heartbeat::report(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        tasks.spawn(images::collector::run(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        tasks.spawn(housekeeping::logs::run(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        tasks.spawn(mirror::keep(
            self.inputs.mirrors.subscribe(),
            Arc::clone(&self.inputs.door) as _,
            shutdown.clone(),
        ));
        let sync_loop = SyncLoop::new(self.shared, self.inputs, control, lifecycle, shutdown);
        let report = tokio::select! {
            report = sync_loop.run() => report,
            // A node without its lease is lost, and must not look as if it were well.
            Some(Err(lost)) = tasks.join_next() => std::panic::resume_unwind(lost.into_panic()),
        };
        while tasks.join_next().await.is_some() {}
        report
    }
}
