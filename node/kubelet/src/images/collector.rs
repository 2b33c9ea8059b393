//! Has unused images removed: when their file system is full, when they are old, and when someone
//! who needs the space asks.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use swiftlet_model::events::{
    EventKind, FREE_DISK_SPACE_FAILED, IMAGE_GC_FAILED, INVALID_DISK_CAPACITY,
};
use swiftlet_model::node_stats::NodeStatsError;
use swiftlet_model::runtime::RuntimeError;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::images::gc::{Candidate, ImageRecords, bytes_to_free};
use crate::shared::Shared;

/// How often images are looked at (`ImageGCPeriod` of `pkg/kubelet/kubelet.go`).
pub const IMAGE_GC_PERIOD: Duration = Duration::from_mins(5);
/// A container that was told that its image is there uses it within this time, or asks again.
const WANTED_LIMIT: Duration = Duration::from_mins(5);

/// Why images could not be removed, in the words of Kubernetes.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// The runtime did not tell what it has, or did not remove it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The file system could not be asked.
    #[error(transparent)]
    Stats(#[from] NodeStatsError),
    /// It says that it has no size.
    #[error("invalid capacity 0 on image filesystem")]
    Capacity,
    /// There was too little to remove.
    #[error(
        "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, \
         but only found {freed} bytes eligible to free."
    )]
    TooLittle {
        /// How much should have been freed.
        wanted: u64,
        /// How much was.
        freed: u64,
    },
}

/// What it knows of images.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    /// Held for a whole run, so that two who want space do not count the same images.
    records: Mutex<ImageRecords>,
    /// Images that a container is about to be made of, by id. A lock, because all workers tell; it
    /// is held only to look.
    wanted: std::sync::Mutex<HashMap<String, Instant>>,
}

impl Collector {
    /// A container is about to be made of this image.
    pub(crate) fn wanted(&self, id: &str, now: Instant) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.retain(|_, at| now.saturating_duration_since(*at) < WANTED_LIMIT);
        wanted.insert(id.to_owned(), now);
    }

    fn is_wanted(&self, id: &str, now: Instant) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let at = wanted.get(id);
        at.is_some_and(|at| now.saturating_duration_since(*at) < WANTED_LIMIT)
    }
}

/// Looks after images until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(shared.limits.image_gc_period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failed = false;
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        let Some(result) = shutdown.run_until_cancelled(look(&shared)).await else {
            return;
        };
        if let Err(error) = &result {
            tracing::warn!(%error, "unused images were not removed");
            // Once is no news: the runtime may just have been starting.
            if failed {
                let text = error.to_string();
                shared
                    .recorder
                    .node(EventKind::Warning, IMAGE_GC_FAILED, text);
            }
        }
        failed = result.is_err();
    }
}

/// Removes all images that nobody uses and that are not young; answers how many bytes that frees.
pub(crate) async fn remove_unused_images(shared: &Shared) -> u64 {
    match free(shared, u64::MAX).await {
        Ok(freed) => freed,
        Err(error) => {
            tracing::warn!(%error, "unused images were not removed");
            0
        }
    }
}

/// One look: what is old goes, and what the disk needs.
async fn look(shared: &Shared) -> Result<(), CollectError> {
    remove_outlived(shared).await?;
    let doors = &shared.doors;
    let Some(place) = doors.runtime.image_filesystem().await? else {
        return Ok(());
    };
    let disk = doors.stats.filesystem(&place.mount_point).await?.bytes;
    if disk.capacity == 0 {
        return Err(tell(shared, INVALID_DISK_CAPACITY, CollectError::Capacity));
    }
    let wanted = bytes_to_free(&shared.limits.image_gc, disk);
    if wanted == 0 {
        return Ok(());
    }
    tracing::info!(
        bytes = wanted,
        "the disk of images is full, unused ones are removed"
    );
    let freed = free(shared, wanted).await?;
    if freed < wanted {
        let error = CollectError::TooLittle { wanted, freed };
        return Err(tell(shared, FREE_DISK_SPACE_FAILED, error));
    }
    Ok(())
}

fn tell(shared: &Shared, reason: &str, error: CollectError) -> CollectError {
    let text = error.to_string();
    shared.recorder.node(EventKind::Warning, reason, text);
    error
}

async fn remove_outlived(shared: &Shared) -> Result<(), CollectError> {
    let mut records = shared.images.collector.records.lock().await;
    let now = observe(shared, &mut records).await?;
    let old = records.outlived(&shared.limits.image_gc, now);
    remove(shared, &mut records, old, u64::MAX).await?;
    Ok(())
}

/// Removes unused images until `wanted` bytes are freed; answers how many bytes were.
async fn free(shared: &Shared, wanted: u64) -> Result<u64, CollectError> {
    let mut records = shared.images.collector.records.lock().await;
    let now = observe(shared, &mut records).await?;
    let unused = records.unused(&shared.limits.image_gc, now);
    remove(shared, &mut records, unused, wanted).await
}

async fn observe(shared: &Shared, records: &mut ImageRecords) -> Result<Instant, RuntimeError> {
    let runtime = &shared.doors.runtime;
    let (images, pods) = tokio::try_join!(runtime.list_images(), runtime.list_pods())?;
    let now = shared.doors.clock.now();
    records.observe(&images, &pods, now);
    Ok(now)
}

/// What cannot be removed does not keep the rest; the first error is told at the end.
async fn remove(
    shared: &Shared,
    records: &mut ImageRecords,
    candidates: Vec<Candidate>,
    wanted: u64,
) -> Result<u64, CollectError> {
    let (mut freed, mut failed) = (0_u64, None);
    for image in candidates {
        if freed >= wanted {
            break;
        }
        // Asked again before each: a container may have come since the list was made.
        let now = shared.doors.clock.now();
        if shared.images.collector.is_wanted(&image.id, now) {
            continue;
        }
        match shared.doors.runtime.remove_image(&image.id).await {
            Ok(()) => {
                tracing::info!(image = image.id, bytes = image.size_bytes, "image removed");
                records.removed(&image.id);
                freed = freed.saturating_add(image.size_bytes);
            }
            Err(error) => {
                tracing::warn!(image = image.id, %error, "image not removed");
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        Some(error) if freed < wanted && wanted != u64::MAX => Err(error.into()),
        _ => Ok(freed),
    }
}
