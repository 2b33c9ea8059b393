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
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod admission;
pub mod cgroups;
pub mod config;
mod events;
mod housekeeping;
mod images;
pub mod kuberuntime;
pub mod node_status;
mod options;
pub mod pod_manager;
mod pod_worker;
pub mod resources;
mod shared;
pub mod status;
mod sync_loop;
mod timeline;

#[cfg(test)]
mod testing;

pub use crate::node_status::NodeFacts;
pub use crate::options::{
    CONTAINER_STARTS_MAX, Doors, HOUSEKEEPING_PERIOD, KubeletOptions, Limits, SANDBOX_LIMIT,
    SANDBOX_STARTS_MAX,
};
pub use crate::sync_loop::KubeletReport;
pub use crate::timeline::{Timeline, TimelinePhase, TimelineRecord};

use crate::node_status::heartbeat;
use crate::shared::Shared;
use crate::sync_loop::SyncLoop;

/// The kubelet of one node.
pub struct Kubelet {
    shared: Arc<Shared>,
}

impl Kubelet {
    /// A kubelet that has not begun to work.
    pub fn new(options: KubeletOptions, doors: Doors) -> Self {
        Self {
            shared: Arc::new(Shared::new(options, doors)),
        }
    }

    /// Works until `shutdown`; running containers go on after that.
    pub async fn run(
        self,
        control: ControlPlaneReceiver,
        lifecycle: LifecycleReceiver,
        shutdown: CancellationToken,
    ) -> KubeletReport {
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeat::renew_lease(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        tasks.spawn(heartbeat::report(
            Arc::clone(&self.shared),
            shutdown.clone(),
        ));
        let sync_loop = SyncLoop::new(self.shared, control, lifecycle, shutdown);
        let report = tokio::select! {
            report = sync_loop.run() => report,
            // A node without its lease is lost, and must not look as if it were well.
            Some(Err(lost)) = tasks.join_next() => std::panic::resume_unwind(lost.into_panic()),
        };
        while tasks.join_next().await.is_some() {}
        report
    }
}
