//! What a container leaves behind when it ends: `state.terminated.message`. Rules:
//! `getTerminationMessage` in `pkg/kubelet/kuberuntime/kuberuntime_container.go`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::ids::{ContainerId, PodKey, PodUid};
use swiftlet_model::runtime::{ContainerStatus, RuntimeError};
use swiftlet_model::volumes::PodFiles;

use crate::housekeeping::logs::container_log;
use crate::kuberuntime::execute::Answer;
use crate::shared::Shared;

/// Bytes of one container's message (`MaxContainerTerminationMessageLength` in
/// `pkg/kubelet/container`).
const MESSAGE_BYTES_MAX: usize = 4096;
/// Lines of the log that stand in for a message (`MaxContainerTerminationMessageLogLines`).
const LOG_LINES_MAX: usize = 80;
/// Bytes of them (`MaxContainerTerminationMessageLogLength`).
const LOG_BYTES_MAX: usize = 2048;

/// Where a container's last words are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastWords {
    pod: PodUid,
    container: String,
    attempt: u32,
    /// `terminationMessagePolicy: FallbackToLogsOnError`.
    falls_back: bool,
    log: PathBuf,
}

impl LastWords {
    /// The last words of that attempt of a container.
    pub(crate) fn of(pod: &Pod, container: &Container, attempt: u32, log_root: &Path) -> Self {
        let (key, name) = (PodKey::of(pod), &container.name);
        let policy = container.termination_message_policy.as_deref();
        Self {
            pod: key.uid.clone(),
            container: name.clone(),
            attempt,
            falls_back: policy == Some("FallbackToLogsOnError"),
            log: container_log(log_root, &key, name, attempt),
        }
    }

    async fn file(&self, files: &dyn PodFiles) -> String {
        let Self {
            pod,
            container,
            attempt,
            ..
        } = self;
        let read = files
            .termination_message(pod, container, *attempt, MESSAGE_BYTES_MAX)
            .await;
        read.unwrap_or_else(|error| format!("Error on reading termination log: {error}"))
    }

    async fn log(&self, files: &dyn PodFiles) -> String {
        let read = files
            .log_tail(&self.log, LOG_LINES_MAX, LOG_BYTES_MAX)
            .await;
        read.unwrap_or_else(|error| format!("Error on reading termination message: {error}"))
    }
}

/// Asks the runtime for a container's record, and reads its last words at the same time.
pub(crate) async fn record(
    shared: Arc<Shared>,
    id: ContainerId,
    words: Option<LastWords>,
) -> Answer {
    let asked = shared.doors.runtime.container_status(&id);
    let Some(words) = words else {
        return Answer::Record(asked.await);
    };
    let files = shared.doors.files.as_ref();
    let (asked, mut message) = futures::join!(asked, words.file(files));
    let failed = |record: &ContainerStatus| record.exit.as_ref().is_some_and(|exit| exit.code != 0);
    if message.is_empty() && words.falls_back && asked.as_ref().is_ok_and(failed) {
        message = words.log(files).await;
    }
    Answer::Record(with_message(asked, &message))
}

/// The runtime's own words come first.
fn with_message(
    asked: Result<ContainerStatus, RuntimeError>,
    message: &str,
) -> Result<ContainerStatus, RuntimeError> {
    let mut record = asked?;
    if let Some(exit) = record.exit.as_mut().filter(|_| !message.is_empty()) {
        if !exit.message.is_empty() {
            exit.message.push_str(": ");
        }
        exit.message.push_str(message);
    }
    Ok(record)
}
