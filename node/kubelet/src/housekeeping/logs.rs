//! Keeps container logs small.
//!
//! ```text
//! 0.log                           the runtime writes here; too large ▶ moved away, opened anew
//! 0.log.20240102-150405           the one before: left as it is, someone may be reading it
//! 0.log.20240102-140405.gz        older ones
//! 0.log.20240102-140405.tmp       what a compression left that was interrupted: removed
//! ```
//!
//! Rules: `pkg/kubelet/logs/container_log_manager.go` of Kubernetes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, PodKey};
use swiftlet_model::logs::LogError;
use swiftlet_model::runtime::{ContainerState, RuntimeError, RuntimePod};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Ending of a log that is compressed.
const COMPRESSED: &str = ".gz";
/// Ending of a log that is being compressed.
const UNFINISHED: &str = ".tmp";
/// What is put between a log's name and the moment at which it was moved away.
const STAMP: &str = "%Y%m%d-%H%M%S";

/// How large logs become. Defaults: `pkg/kubelet/apis/config/v1beta1/defaults.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// `containerLogMaxSize` in bytes; `None`: logs are not rotated.
    pub bytes_max: Option<u64>,
    /// `containerLogMaxFiles`: files of one container, the one that is written to among them.
    pub files_max: usize,
    /// `containerLogMaxWorkers`: logs that are rotated at the same time.
    pub workers: usize,
    /// `containerLogMonitorInterval`.
    pub period: Duration,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self {
            bytes_max: Some(10 << 20),
            files_max: 5,
            workers: 1,
            period: Duration::from_secs(10),
        }
    }
}

/// The log of a container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningLog {
    container: ContainerId,
    path: PathBuf,
}

/// What is done to the files of one log, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rotation {
    remove: Vec<String>,
    compress: Vec<String>,
    /// The name under which the log is kept.
    rotated: String,
}

/// Why a log was not rotated.
#[derive(Clone, Debug, thiserror::Error)]
enum RotationError {
    #[error(transparent)]
    File(#[from] LogError),
    #[error("failed to reopen container log: {0}")]
    Reopen(#[from] RuntimeError),
}

/// Where the runtime writes the log of a container.
pub(crate) fn container_log(root: &Path, pod: &PodKey, container: &str, attempt: u32) -> PathBuf {
    let file = format!("{attempt}.log");
    root.join(pod.log_folder()).join(container).join(file)
}

/// Removes the log of a container that is being removed, and all that was made of it.
pub(crate) async fn remove_log(shared: &Shared, log: &Path) -> Result<(), LogError> {
    let files = &shared.doors.logs;
    for name in files.made_of(log).await? {
        files.remove(&log.with_file_name(name)).await?;
    }
    files.remove(log).await
}

/// The logs of all containers that run, by what the runtime lists. Others write nothing more.
pub(crate) fn running_logs(pods: &[RuntimePod], root: &Path) -> Vec<RunningLog> {
    let mut all = Vec::new();
    for pod in pods {
        let running = pod.containers.iter();
        let running = running.filter(|one| one.state == ContainerState::Running);
        all.extend(running.map(|one| RunningLog {
            container: one.id.clone(),
            path: container_log(root, &pod.pod, one.name.as_str(), one.attempt),
        }));
    }
    all
}

/// What becomes of the files that were made of `log`, so that with the new one there are at most
/// `files_max`.
fn rotation(log: &str, made_of: &[String], files_max: usize, at: Timestamp) -> Rotation {
    let is_done = |name: &String| {
        let compressed = format!("{name}{COMPRESSED}");
        !name.ends_with(COMPRESSED) && made_of.contains(&compressed)
    };
    let is_waste = |name: &&String| name.ends_with(UNFINISHED) || is_done(name);
    let (mut remove, mut kept): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for name in made_of {
        if is_waste(&name) {
            remove.push(name.clone());
        } else {
            kept.push(name.clone());
        }
    }
    // The stamps sort by time.
    kept.sort();
    // Beside the log that is moved away now and the one that is written to then.
    let excess = kept.len().saturating_sub(files_max.saturating_sub(2));
    remove.extend(kept.drain(..excess));
    kept.retain(|name| !name.ends_with(COMPRESSED));
    Rotation {
        remove,
        compress: kept,
        rotated: format!("{log}.{}", at.strftime(STAMP)),
    }
}

/// Looks after logs until `shutdown`.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let policy = shared.limits.logs;
    let Some(bytes_max) = policy.bytes_max else {
        return;
    };
    let mut ticks = tokio::time::interval(policy.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        // A rotation that has begun is finished: the container would write to a file that has
        // been moved away.
        look(&shared, bytes_max).await;
    }
}

async fn look(shared: &Shared, bytes_max: u64) {
    let running = shared.running_logs.borrow().clone();
    if running.is_empty() {
        return;
    }
    let paths = running.iter().map(|log| log.path.clone()).collect();
    let sizes = match shared.doors.logs.sizes(paths).await {
        Ok(sizes) => sizes,
        Err(error) => {
            tracing::warn!(%error, "sizes of container logs cannot be read");
            return;
        }
    };
    let due = running.iter().zip(sizes);
    let due = due.filter(|(_, size)| size.is_none_or(|size| size >= bytes_max));
    let workers = shared.limits.logs.workers.max(1);
    let each = futures::stream::iter(due).for_each_concurrent(workers, |(log, size)| async move {
        if !runs(shared, log).await {
            return;
        }
        let result = match size {
            // The agent ended between the two steps of a rotation.
            None => reopen(shared, log).await,
            Some(_) => rotate(shared, log).await,
        };
        if let Err(error) = result {
            let path = log.path.display();
            tracing::warn!(%path, %error, "container log was not rotated");
        }
    });
    each.await;
}

/// Whether the container still runs: the list is some seconds old, and of one that has ended since
/// the log is over, or gone with it.
async fn runs(shared: &Shared, log: &RunningLog) -> bool {
    match shared.doors.runtime.container_status(&log.container).await {
        Ok(status) => status.state == ContainerState::Running,
        Err(error) => {
            tracing::debug!(container = %log.container, %error, "its log is left for now");
            false
        }
    }
}

async fn reopen(shared: &Shared, log: &RunningLog) -> Result<(), RotationError> {
    Ok(shared.doors.runtime.reopen_log(&log.container).await?)
}

async fn rotate(shared: &Shared, log: &RunningLog) -> Result<(), RotationError> {
    let files = &shared.doors.logs;
    let name = log.path.file_name().unwrap_or_default().to_string_lossy();
    let made_of = files.made_of(&log.path).await?;
    let at = shared.doors.clock.timestamp();
    let plan = rotation(&name, &made_of, shared.limits.logs.files_max, at);
    let beside = |name: &String| log.path.with_file_name(name);
    for name in &plan.remove {
        files.remove(&beside(name)).await?;
    }
    for name in &plan.compress {
        files.compress(&beside(name)).await?;
    }
    let rotated = beside(&plan.rotated);
    files.rename(&log.path, &rotated).await?;
    if let Err(error) = reopen(shared, log).await {
        // It goes on being written to: under its own name it is found and tried again.
        files.rename(&rotated, &log.path).await?;
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
