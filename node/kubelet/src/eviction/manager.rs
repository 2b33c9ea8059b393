//! The task that looks, and acts: one pod at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::events::EventKind;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::node_stats::{DiskUse, Level, NodeStatsError, PodDisk};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::{EVICTED, is_critical, priority};
use crate::eviction::counts::{Counts, OverLimit, counter};
use crate::eviction::limits::container_use;
use crate::eviction::messages::{self, ContainerUse, disruption_target};
use crate::eviction::observe::{Seen, observe};
use crate::eviction::rank::{By, Contender, rank};
use crate::eviction::thresholds::{EvictionOptions, Threshold, Value};
use crate::eviction::watchdog::{Signal, Watchdog};
use crate::images::collector::remove_unused_images;
use crate::kuberuntime::config::grace_period_s;
use crate::resources::pod_demand;
use crate::shared::Shared;
use crate::status::failure::PodFailure;

/// How often the node is looked at (kubelet's `evictionMonitoringPeriod`).
pub(super) const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// How long an evicted pod may take to end before the next one goes (`podCleanupTimeout`).
const POD_CLEANUP_LIMIT: Duration = Duration::from_secs(30);
/// How soon the node is looked at again after a pod has ended.
const AGAIN: Duration = Duration::from_secs(1);
/// Time that a hard threshold leaves a pod (`immediateEvictionGracePeriodSeconds`).
const GRACE_HARD: Duration = Duration::from_secs(1);

/// Watches over the node until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let options = shared.resources.eviction.clone();
    let hints = memory_hints(&shared, &options).await;
    let (counter, counts) = counter(&shared);
    let mut manager = Manager {
        watchdog: Watchdog::new(options.clone()),
        shared,
        options,
        hints,
        counts,
        over: None,
        told: BTreeSet::new(),
    };
    let both = async { tokio::join!(manager.run(), counter.run()) };
    shutdown.run_until_cancelled(both).await;
}

/// Asks the kernel to tell when the hard threshold, or else the soft one, is crossed.
async fn memory_hints(shared: &Shared, options: &EvictionOptions) -> Option<watch::Receiver<u64>> {
    let all = options.thresholds.iter();
    let memory = all.filter(|one| one.signal == Signal::MemoryAvailable);
    let threshold = memory.min_by_key(|one| one.grace.is_some())?;
    let capacity = match threshold.value {
        Value::Amount(_) => 0,
        Value::Percent(_) => shared.doors.stats.memory().await.ok()?.capacity,
    };
    shared
        .doors
        .stats
        .memory_hints(threshold.value.of(capacity))
}

struct Manager {
    shared: Arc<Shared>,
    options: EvictionOptions,
    watchdog: Watchdog,
    hints: Option<watch::Receiver<u64>>,
    counts: Counts,
    /// A pod that is to go whatever the node has left.
    over: Option<OverLimit>,
    /// Pods that were told to go and have not gone: another one is next.
    told: BTreeSet<PodUid>,
}

impl Manager {
    async fn run(&mut self) {
        loop {
            let wait = match self.pass().await {
                Some(evicted) => {
                    self.await_end(&evicted).await;
                    AGAIN
                }
                None => LOOK_PERIOD,
            };
            let hinted = async {
                match &mut self.hints {
                    Some(hints) => hints.changed().await.is_ok(),
                    None => false,
                }
            };
            tokio::select! {
                true = hinted => {}
                over = self.counts.next() => self.over = over,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn await_end(&self, uid: &PodUid) {
        let mut changed = self.shared.keeper.changed();
        let ended = async {
            while self.shared.keeper.room().contains(uid) {
                if changed.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout(POD_CLEANUP_LIMIT, ended)
            .await
            .is_err()
        {
            tracing::warn!(%uid, "an evicted pod takes long to end");
        }
    }

    /// One look; answers the pod that had to go.
    async fn pass(&mut self) -> Option<PodUid> {
        let told = &mut self.told;
        told.retain(|uid| self.shared.keeper.room().contains(uid));
        if let Some(OverLimit { pod, message }) = self.over.take()
            && self.shared.keeper.room().contains(&PodKey::of(&pod).uid)
            && self.may_go(&pod)
        {
            return Some(self.evict(&pod, message, GRACE_HARD).await);
        }
        let seen = observe(&self.shared, &self.options.thresholds).await;
        let now = self.shared.doors.clock.now();
        let findings = self.watchdog.pass(&seen.levels, now);
        self.shared.keeper.set_pressure(findings.pressure);
        let threshold = findings.act?;
        let level = *seen.levels.get(&threshold.signal)?;
        let resource = threshold.signal.resource();
        self.shared.recorder.node(
            EventKind::Warning,
            "EvictionThresholdMet",
            format!("Attempting to reclaim {resource}"),
        );
        if threshold.signal.is_disk() && self.reclaimed(&threshold, &seen).await {
            tracing::info!(resource, "what nobody uses was enough to remove");
            return None;
        }
        self.evict_one(&threshold, level, seen.split).await
    }

    fn may_go(&self, pod: &Pod) -> bool {
        !is_critical(pod) && !self.told.contains(&PodKey::of(pod).uid)
    }

    /// Removes what nobody uses; whether that was enough.
    async fn reclaimed(&self, threshold: &Threshold, seen: &Seen) -> bool {
        let of_images = matches!(
            threshold.signal,
            Signal::ImagefsAvailable | Signal::ImagefsInodesFree
        );
        if seen.split && !of_images {
            // Neither images nor layers lie on the file system that is full.
            return false;
        }
        // In this order: the images of dead containers are used.
        self.shared.keeper.dead.remove().await;
        remove_unused_images(&self.shared).await;
        let seen = observe(&self.shared, &self.options.thresholds).await;
        let level = seen.levels.get(&threshold.signal);
        level.is_some_and(|level| {
            let more = threshold
                .min_reclaim
                .map_or(0, |more| more.of(level.capacity));
            level.available >= threshold.value.of(level.capacity).saturating_add(more)
        })
    }

    async fn evict_one(
        &mut self,
        threshold: &Threshold,
        level: Level,
        split: bool,
    ) -> Option<PodUid> {
        let pods = self.shared.keeper.room().pods();
        let pods: Vec<_> = pods.into_iter().filter(|pod| self.may_go(pod)).collect();
        let disks = if threshold.signal.is_disk() {
            // Where it is only being counted, the pass after that goes on from here.
            self.counts.take_all()?
        } else {
            Ok(BTreeMap::new())
        };
        let usages = match &disks {
            Ok(disks) => self.usages(threshold.signal, &pods, (split, disks)).await,
            Err(error) => Err(error.clone()),
        };
        let usages = match usages {
            Ok(usages) => usages,
            Err(error) => {
                // Ending a pod by guess helps nobody.
                tracing::warn!(%error, "no pod is evicted: their use cannot be read");
                return None;
            }
        };
        let mut contenders: Vec<_> = pods
            .into_iter()
            .map(|pod| contender(pod, threshold.signal, &usages))
            .collect();
        let by = if threshold.signal == Signal::PidAvailable {
            By::UsageAlone
        } else {
            By::Request
        };
        rank(&mut contenders, by);
        let Some(first) = contenders.into_iter().next() else {
            tracing::warn!("the node is short of something, and no pod can be evicted");
            return None;
        };
        let disk = disks
            .ok()
            .and_then(|mut all| all.remove(&PodKey::of(&first.pod).uid));
        let containers = self.container_usages(threshold.signal, &first, disk).await;
        let message = messages::node_low(threshold, level, &first.pod, &containers);
        let grace = if threshold.grace.is_none() {
            GRACE_HARD
        } else {
            let own = u64::try_from(grace_period_s(&first.pod)).unwrap_or_default();
            self.options.max_pod_grace.min(Duration::from_secs(own))
        };
        Some(self.evict(&first.pod, message, grace).await)
    }

    async fn usages(
        &self,
        signal: Signal,
        pods: &[Arc<Pod>],
        (split, disks): (bool, &BTreeMap<PodUid, PodDisk>),
    ) -> Result<BTreeMap<PodUid, u64>, NodeStatsError> {
        let stats = &self.shared.doors.stats;
        let uids: Vec<_> = pods.iter().map(|pod| PodKey::of(pod).uid).collect();
        match signal {
            Signal::MemoryAvailable => stats.pod_memory(&uids).await,
            Signal::PidAvailable => stats.pod_pids(&uids).await,
            disk => {
                let used = |found| amount_of(disk, on_that_disk(disk, split, found));
                let known = disks.iter().map(|(uid, found)| (uid.clone(), used(found)));
                Ok(known.collect())
            }
        }
    }

    /// For the message alone: what cannot be read is not told.
    async fn container_usages(
        &self,
        signal: Signal,
        one: &Contender,
        disk: Option<PodDisk>,
    ) -> Vec<ContainerUse> {
        let stats = &self.shared.doors.stats;
        if signal.is_disk() {
            let disk = disk.unwrap_or_default();
            let names = disk.logs.keys().cloned();
            let of = |name: &str| amount_of(signal, container_use(&one.pod, &disk, name));
            let uses = names.map(|name| ContainerUse {
                usage: of(&name),
                name,
            });
            return uses.collect();
        }
        if signal != Signal::MemoryAvailable {
            return Vec::new();
        }
        let uid = PodKey::of(&one.pod).uid;
        let by_id = stats.container_memory(&uid).await.unwrap_or_default();
        let status = one.pod.status.as_ref();
        let statuses = status.into_iter().flat_map(|status| {
            let mains = status.container_statuses.iter().flatten();
            mains.chain(status.init_container_statuses.iter().flatten())
        });
        statuses
            .filter_map(|status| {
                let (_, id) = status.container_id.as_deref()?.split_once("://")?;
                let usage = *by_id.get(id)?;
                let name = status.name.clone();
                Some(ContainerUse { name, usage })
            })
            .collect()
    }

    async fn evict(&mut self, pod: &Arc<Pod>, message: String, grace: Duration) -> PodUid {
        let uid = PodKey::of(pod).uid;
        tracing::info!(pod = %PodKey::of(pod), message, "evicted");
        self.shared
            .recorder
            .pod(pod, None, EventKind::Warning, EVICTED, message.clone());
        let now = self.shared.doors.clock.timestamp();
        let failure = PodFailure {
            reason: EVICTED.to_owned(),
            condition: Some(disruption_target(&message, now)),
            message,
            grace: Some(grace),
        };
        self.shared.keeper.fail(uid.clone(), failure).await;
        self.told.insert(uid.clone());
        uid
    }
}

/// What of a pod's files lies on the disk that is short: layers lie with the images, which may have
/// a file system of their own.
fn on_that_disk(signal: Signal, split: bool, disk: &PodDisk) -> DiskUse {
    let of_images = matches!(signal, Signal::ImagefsAvailable | Signal::ImagefsInodesFree);
    match (split, of_images) {
        (false, _) => disk.total(),
        (true, true) => disk.in_layers(),
        (true, false) => disk.beside_layers(),
    }
}

fn amount_of(signal: Signal, used: DiskUse) -> u64 {
    if signal.is_bytes() {
        used.bytes
    } else {
        used.inodes
    }
}

fn contender(pod: Arc<Pod>, signal: Signal, usages: &BTreeMap<PodUid, u64>) -> Contender {
    let request = pod_demand(&pod).get(signal.resource()).copied();
    Contender {
        priority: priority(&pod),
        usage: usages.get(&PodKey::of(&pod).uid).copied(),
        request: u64::try_from(request.unwrap_or_default()).unwrap_or_default(),
        pod,
    }
}
