//! What pods have written, counted beside everything else: files may be many and a disk that is
//! full is slow, and memory is looked at meanwhile.
//!
//! ```text
//! counter ──OverLimit──▶ manager      pods with limits, every ten seconds
//!         ◀──wanted────               all pods, when the node's disk is short
//!         ──all counts──▶
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::node_stats::{NodeStatsError, PodDisk, PodPaths};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::admission::is_critical;
use crate::eviction::limits::{exceeded, has_limits, limits_layers};
use crate::eviction::manager::LOOK_PERIOD;
use crate::shared::Shared;

/// A pod that wrote more than its own limits allow.
#[derive(Debug)]
pub(super) struct OverLimit {
    pub(super) pod: Arc<Pod>,
    pub(super) message: String,
}

/// What each pod has written.
pub(super) type AllCounts = Result<BTreeMap<PodUid, PodDisk>, NodeStatsError>;

/// The manager's end. At most one thing waits in each direction: the counter waits until it is
/// taken, and what comes after is newer.
#[derive(Debug)]
pub(super) struct Counts {
    over: mpsc::Receiver<OverLimit>,
    wanted: mpsc::Sender<()>,
    finished: mpsc::Receiver<AllCounts>,
    /// All counts that were not used yet, and when they were made.
    all: Option<(Instant, AllCounts)>,
}

impl Counts {
    /// What all pods have written. `None`: it is counted now, and [`Self::next`] tells when
    /// that is done.
    pub(super) fn take_all(&mut self) -> Option<AllCounts> {
        let all = self.all.take();
        let fresh = all.filter(|(at, _)| at.elapsed() < LOOK_PERIOD);
        if fresh.is_none() {
            // Full: it is asked for already.
            self.wanted.try_send(()).ok();
        }
        fresh.map(|(_, all)| all)
    }

    /// Waits for a pod that is over its limits, or until all pods are counted: then it is `None`.
    pub(super) async fn next(&mut self) -> Option<OverLimit> {
        tokio::select! {
            Some(over) = self.over.recv() => Some(over),
            Some(all) = self.finished.recv() => {
                self.all = Some((Instant::now(), all));
                None
            }
            // The counter ends with the manager.
            else => std::future::pending().await,
        }
    }
}

/// Counts.
pub(super) struct Counter {
    shared: Arc<Shared>,
    over: mpsc::Sender<OverLimit>,
    wanted: mpsc::Receiver<()>,
    finished: mpsc::Sender<AllCounts>,
}

/// The counter, which is to be run, and what it is asked by.
pub(super) fn counter(shared: &Arc<Shared>) -> (Counter, Counts) {
    let (over, over_out) = mpsc::channel(1);
    let (wanted, wanted_out) = mpsc::channel(1);
    let (finished, finished_out) = mpsc::channel(1);
    let counter = Counter {
        shared: Arc::clone(shared),
        over,
        wanted: wanted_out,
        finished,
    };
    let counts = Counts {
        over: over_out,
        wanted,
        finished: finished_out,
        all: None,
    };
    (counter, counts)
}

impl Counter {
    /// Runs as long as the manager.
    pub(super) async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            tokio::select! {
                biased;
                Some(()) = self.wanted.recv() => {
                    let all = self.all().await;
                    if self.finished.send(all).await.is_err() {
                        return;
                    }
                }
                () = sleep_until(due) => {
                    self.limited().await;
                    due = Instant::now() + LOOK_PERIOD;
                }
            }
        }
    }

    /// Only pods with limits are looked at.
    async fn limited(&self) {
        let pods = self.shared.keeper.room().pods();
        let limited = pods.into_iter().filter(|pod| has_limits(pod));
        for pod in limited.filter(|pod| !is_critical(pod)) {
            match self.count(&pod, limits_layers(&pod)).await {
                Ok(disk) => {
                    if let Some(message) = exceeded(&pod, &disk) {
                        // Nobody to tell it to: the manager is gone, and so will be this.
                        self.over.send(OverLimit { pod, message }).await.ok();
                    }
                }
                Err(error) => tracing::debug!(%error, "a pod's disk was not read"),
            }
        }
    }

    async fn all(&self) -> AllCounts {
        let mut all = BTreeMap::new();
        // The room is not held while pods are read.
        let pods = self.shared.keeper.room().pods();
        for pod in pods {
            if !is_critical(&pod) {
                all.insert(PodKey::of(&pod).uid, self.count(&pod, true).await?);
            }
        }
        Ok(all)
    }

    async fn count(&self, pod: &Pod, layers: bool) -> Result<PodDisk, NodeStatsError> {
        let key = PodKey::of(pod);
        let paths = PodPaths {
            layers,
            logs: self.shared.log_root.join(key.log_folder()),
            pod: key.uid,
        };
        self.shared.doors.stats.pod_disk(&paths).await
    }
}
