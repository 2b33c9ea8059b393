//! Reads what the thresholds are about. What cannot be read is left out.

use std::time::Duration;

use swiftlet_model::node_stats::{FilesystemLevel, Level, NodeStatsError};

use crate::eviction::thresholds::Threshold;
use crate::eviction::watchdog::{Observations, Signal};
use crate::shared::Shared;

/// How long the runtime may take to tell where its images lie: memory is not looked at meanwhile.
const RUNTIME_LIMIT: Duration = Duration::from_secs(2);

/// What was seen of the node.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) levels: Observations,
    /// Images lie on a file system of their own.
    pub(super) split: bool,
}

/// Looks at everything that some threshold is about.
pub(super) async fn observe(shared: &Shared, thresholds: &[Threshold]) -> Seen {
    let stats = &shared.doors.stats;
    let wanted = |wanted: &[Signal]| thresholds.iter().any(|one| wanted.contains(&one.signal));
    let mut seen = Seen::default();
    if wanted(&[Signal::MemoryAvailable]) {
        put(&mut seen, Signal::MemoryAvailable, stats.memory().await);
    }
    if wanted(&[Signal::PidAvailable]) {
        put(&mut seen, Signal::PidAvailable, stats.pids().await);
    }
    let images = [Signal::ImagefsAvailable, Signal::ImagefsInodesFree];
    let node = [Signal::NodefsAvailable, Signal::NodefsInodesFree];
    if !wanted(&images) && !wanted(&node) {
        return seen;
    }
    let node_level = stats.node_filesystem().await;
    if wanted(&images) {
        let place = image_filesystem(shared);
        if let Ok(image_level) = tokio::time::timeout(RUNTIME_LIMIT, place).await {
            if let (Some(Ok(images)), Ok(node)) = (&image_level, &node_level) {
                seen.split = images.id != node.id;
            }
            // Where the runtime does not tell, images lie with everything else.
            let level = image_level.unwrap_or_else(|| node_level.clone());
            put_disk(&mut seen, images, level);
        } else {
            tracing::debug!("the runtime does not tell in time where its images lie");
        }
    }
    put_disk(&mut seen, node, node_level);
    seen
}

async fn image_filesystem(shared: &Shared) -> Option<Result<FilesystemLevel, NodeStatsError>> {
    let place = shared
        .doors
        .runtime
        .image_filesystem()
        .await
        .ok()
        .flatten()?;
    Some(shared.doors.stats.filesystem(&place.mount_point).await)
}

fn put(seen: &mut Seen, signal: Signal, level: Result<Level, NodeStatsError>) {
    match level {
        Ok(level) => {
            seen.levels.insert(signal, level);
        }
        Err(error) => tracing::debug!(%error, signal = signal.as_str(), "not observed"),
    }
}

fn put_disk(seen: &mut Seen, names: [Signal; 2], level: Result<FilesystemLevel, NodeStatsError>) {
    let [bytes, inodes] = names;
    match level {
        Ok(level) => {
            seen.levels.insert(bytes, level.bytes);
            // Some file systems make inodes as they need them, and count none.
            if level.inodes.capacity > 0 {
                seen.levels.insert(inodes, level.inodes);
            }
        }
        Err(error) => tracing::debug!(%error, signal = bytes.as_str(), "not observed"),
    }
}
