//! The container runtime as the kubelet sees it, and what it reports.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::clock::Deadline;
use crate::ids::{ContainerId, PodUid, SandboxId};

mod config;
mod events;
mod image;
pub mod labels;
mod report;

pub use config::*;
pub use events::*;
pub use image::*;
pub use report::*;

/// The container runtime.
///
/// Every method may be retried: an implementation treats "already so" as success. No method retries
/// by itself; the worker that called decides.
pub trait Runtime: Send + Sync {
    /// Name and version of the runtime, for `doctor` and the Node object.
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>>;

    /// Whether the runtime and its network say that they are ready.
    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>>;

    /// Creates and starts the pod's sandbox, with its network attached.
    ///
    /// # Errors
    /// [`RuntimeError::Unavailable`] or [`RuntimeError::Timeout`]: the sandbox may or may not exist
    /// then.
    fn run_sandbox<'a>(
        &'a self,
        config: &'a SandboxConfig,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>>;

    /// Kills what runs in the sandbox and releases its network. A missing sandbox is success.
    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Removes the sandbox and its containers. A missing sandbox is success.
    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// State and addresses of one sandbox.
    fn sandbox_status<'a>(
        &'a self,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>>;

    /// Creates a container in a sandbox; does not start it.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        container: &'a ContainerConfig,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>>;

    /// Starts a created container. A running one is success.
    fn start_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// SIGTERM, then SIGKILL when `grace` is over. A stopped or missing container is success.
    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Removes a stopped container. A missing one is success.
    fn remove_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// State of one container with exit code, times and image.
    fn container_status<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>>;

    /// All that the runtime holds for one pod, with each container's status.
    fn pod<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>>;

    /// All pods of the runtime, from its two list calls; containers bear state and exit code
    /// [`None`], which only [`Runtime::pod`] fetches.
    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>>;

    /// Runs a command in a running container and waits for its end. When `limit` is over the
    /// command is killed and the answer is [`RuntimeError::Timeout`].
    fn exec_sync<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecOutput, RuntimeError>>;

    /// Changes the limits of a container that runs or was created.
    fn update_resources<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Makes the runtime write to the log's path anew, after the file there was moved away.
    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// The image if the runtime has it.
    fn image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>>;

    /// All images.
    fn list_images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>>;

    /// Pulls the image and answers its id.
    fn pull_image<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a ImageAuth>,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>>;

    /// Removes the image with that id. A missing one is success.
    fn remove_image<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Where images lie; empty if the runtime does not tell.
    fn image_filesystem(&self) -> BoxFuture<'_, Result<Option<ImageFilesystem>, RuntimeError>>;
}

/// What can go wrong between the kubelet and the runtime.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RuntimeError {
    /// No answer in time; the effect may have happened.
    #[error("the runtime did not answer {call} within {limit_ms} ms")]
    Timeout {
        /// The CRI method.
        call: &'static str,
        /// The limit that passed.
        limit_ms: u64,
    },
    /// The socket does not answer.
    #[error("cannot reach the runtime at {socket}: {cause}")]
    Unavailable {
        /// The runtime's socket.
        socket: PathBuf,
        /// What the transport said.
        cause: String,
    },
    /// The object named in the call does not exist.
    #[error("{call}: not found: {message}")]
    NotFound {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
    /// The object exists already under that name.
    #[error("{call}: already exists: {message}")]
    AlreadyExists {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
    /// The runtime has no such method.
    #[error("{call}: the runtime does not serve it")]
    Unsupported {
        /// The CRI method.
        call: &'static str,
    },
    /// Any other refusal.
    #[error("{call}: {message}")]
    Refused {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
}

impl RuntimeError {
    /// Whether the same call may succeed without anything else changing.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Unavailable { .. })
    }

    /// Whether the object named in the call does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Name and version of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// CRI's version.
    pub api_version: String,
}

/// What the runtime says of its own health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Containers can be run.
    pub runtime_ready: bool,
    /// Sandboxes can get a network.
    pub network_ready: bool,
    /// Why not, in the runtime's words; empty when all is well.
    pub message: String,
}
