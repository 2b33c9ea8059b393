//! What the runtime keeps of pods that have ended: their containers and sandboxes, and with them
//! their images. It stays for status and logs until the pod is deleted, but not on a full disk
//! (kubelet's `DeleteAllUnusedContainers`).
//!
//! Each pod's worker says here whether there is something, and removes it when it is told to.

use std::collections::BTreeSet;
use std::time::Duration;

use swiftlet_model::ids::PodUid;
use tokio::sync::watch;

/// How long the removal is waited for. What takes longer goes on; the node is looked at meanwhile.
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);

/// Kept once for the node.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    /// Pods that have ended, and of which the runtime keeps something.
    pods: watch::Sender<BTreeSet<PodUid>>,
    /// Grows when it must go.
    orders: watch::Sender<u64>,
}

impl Dead {
    /// Whether the runtime keeps something of a pod that has ended.
    pub(crate) fn note(&self, pod: &PodUid, is_there: bool) {
        self.pods.send_if_modified(|pods| {
            if is_there {
                !pods.contains(pod) && pods.insert(pod.clone())
            } else {
                pods.remove(pod)
            }
        });
    }

    /// Tells workers when it must go.
    pub(crate) fn orders(&self) -> watch::Receiver<u64> {
        self.orders.subscribe()
    }

    /// Has it removed, and waits until it is.
    pub(crate) async fn remove(&self) {
        let mut pods = self.pods.subscribe();
        let wanted = pods.borrow_and_update().clone();
        if wanted.is_empty() {
            return;
        }
        tracing::info!(
            pods = wanted.len(),
            "the containers of ended pods are removed"
        );
        self.orders.send_modify(|count| *count += 1);
        let gone = pods.wait_for(|left| left.is_disjoint(&wanted));
        if tokio::time::timeout(REMOVAL_LIMIT, gone).await.is_err() {
            tracing::warn!("the containers of some ended pods are still there");
        }
    }
}
