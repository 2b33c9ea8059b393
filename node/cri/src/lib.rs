//! The Runtime door, spoken to containerd by CRI v1.
//!
//! ```text
//! client.rs     one HTTP/2 connection over the runtime's socket, limits, what an error means
//! daemon.rs     which process answers there
//! sandbox.rs    RunPodSandbox … PodSandboxStatus
//! container.rs  CreateContainer … ContainerStatus
//! pods.rs       both lists, joined by the pod's uid
//! events.rs     GetContainerEvents, and the first process of a container
//! image.rs      ImageStatus, ListImages, PullImage, RemoveImage, ImageFsInfo
//! status.rs     Version, Status
//! streaming.rs  Exec, Attach, PortForward
//! convert.rs    pure: the model's words to CRI's and back
//! ```
//!
//! Nothing is retried here: the worker that called decides. Nothing is made on disk either: the
//! pod's log folder must exist before its sandbox is run (`node/volume` makes it), because
//! containerd creates the log file and not the folders above it.
#![forbid(unsafe_code)]

mod client;
mod container;
mod convert;
mod daemon;
mod events;
mod image;
mod pods;
mod sandbox;
mod status;
mod streaming;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::BoxStream;
use swiftlet_model::BoxFuture;
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerId, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerEvent, ContainerStatus, ExecOutput, FirstProcess, Image, ImageAuth,
    ImageFilesystem, LinuxResources, ProcessOf, Runtime, RuntimeError, RuntimeEvents, RuntimePod,
    RuntimeStatus, RuntimeVersion, SandboxConfig, SandboxStatus,
};

use crate::client::Client;

/// containerd, or any other runtime that speaks CRI v1. A clone shares the connection.
#[derive(Clone, Debug)]
pub struct Cri {
    client: Client,
}

impl Cri {
    /// A runtime behind `socket`, such as `/run/containerd/containerd.sock`. Connects at the first
    /// call, and again at the first call after a connection broke. Must be called inside a tokio
    /// runtime, which carries the connection's task.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            client: Client::new(socket.into()),
        }
    }

    /// The runtime's socket.
    pub fn socket(&self) -> &Path {
        self.client.socket()
    }

    /// Sets what is done when another process answers at the socket than before: the daemon died,
    /// and a new one is there. Called before that is asked anything, on the way to it: it must be
    /// short. The last one that was set counts.
    pub fn on_other_daemon(&self, hook: impl Fn() + Send + 'static) {
        self.client.daemon().on_other(Box::new(hook));
    }

    /// The ids of all sandboxes, whoever made them.
    pub async fn sandbox_ids(&self) -> Result<Vec<String>, RuntimeError> {
        let sandboxes = pods::sandboxes(&self.client, None).await?;
        Ok(sandboxes.into_iter().map(|sandbox| sandbox.id).collect())
    }

    /// The runtime's own configuration as JSON, for `doctor`; `None` if it does not tell.
    pub async fn configuration(&self) -> Result<Option<String>, RuntimeError> {
        status::configuration(&self.client).await
    }
}

impl RuntimeEvents for Cri {
    fn container_events(&self) -> BoxStream<'static, Result<ContainerEvent, RuntimeError>> {
        events::stream(&self.client)
    }

    fn first_process<'a>(
        &'a self,
        id: &'a ContainerId,
        of: ProcessOf,
    ) -> BoxFuture<'a, Result<FirstProcess, RuntimeError>> {
        match of {
            ProcessOf::Container => Box::pin(events::container_process(&self.client, id)),
            ProcessOf::Sandbox => Box::pin(events::sandbox_process(&self.client, id)),
        }
    }

    fn listed_pod<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<Vec<RuntimePod>, RuntimeError>> {
        Box::pin(pods::listed(&self.client, Some(pod)))
    }

    fn daemon(&self) -> BoxFuture<'_, Result<Option<u32>, RuntimeError>> {
        Box::pin(events::daemon(&self.client))
    }
}

impl Runtime for Cri {
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>> {
        Box::pin(status::version(&self.client))
    }

    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>> {
        Box::pin(status::status(&self.client))
    }

    fn run_sandbox<'a>(
        &'a self,
        config: &'a SandboxConfig,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>> {
        Box::pin(sandbox::run(&self.client, config, deadline))
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(sandbox::stop(&self.client, id))
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(sandbox::remove(&self.client, id))
    }

    fn sandbox_status<'a>(
        &'a self,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>> {
        Box::pin(sandbox::status(&self.client, id))
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        container: &'a ContainerConfig,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>> {
        Box::pin(container::create(&self.client, sandbox, container, pod))
    }

    fn start_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(container::start(&self.client, id))
    }

    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(container::stop(&self.client, id, grace))
    }

    fn remove_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(container::remove(&self.client, id))
    }

    fn container_status<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>> {
        Box::pin(container::status(&self.client, id))
    }

    fn pod<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>> {
        Box::pin(pods::one(&self.client, uid))
    }

    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>> {
        Box::pin(pods::listed(&self.client, None))
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecOutput, RuntimeError>> {
        Box::pin(container::exec_sync(&self.client, id, command, limit))
    }

    fn update_resources<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(container::update_resources(&self.client, id, resources))
    }

    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(container::reopen_log(&self.client, id))
    }

    fn image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>> {
        Box::pin(image::one(&self.client, image))
    }

    fn list_images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        Box::pin(image::all(&self.client))
    }

    fn pull_image<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a ImageAuth>,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        Box::pin(image::pull(&self.client, image, auth, pod))
    }

    fn remove_image<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        Box::pin(image::remove(&self.client, id))
    }

    fn image_filesystem(&self) -> BoxFuture<'_, Result<Option<ImageFilesystem>, RuntimeError>> {
        Box::pin(image::filesystem(&self.client))
    }
}
