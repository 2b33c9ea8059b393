//! Tells that the machine had no memory left.
//!
//! Source of the rule and the words: `pkg/kubelet/oom/oom_watcher_linux.go` of Kubernetes. What
//! dies at the limit of a cgroup is not told of here: a container's status says so.

use std::sync::Arc;

use swiftlet_model::events::{EventKind, SYSTEM_OOM};
use swiftlet_model::node_stats::SystemOom;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Tells until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let Some(mut ooms) = shared.doors.stats.system_ooms() else {
        return;
    };
    let telling = async {
        while let Some(SystemOom { process, pid }) = ooms.recv().await {
            let message = format!("System OOM encountered, victim process: {process}, pid: {pid}");
            tracing::warn!("{message}");
            shared
                .recorder
                .node(EventKind::Warning, SYSTEM_OOM, message);
        }
    };
    shutdown.run_until_cancelled(telling).await;
}
