//! A runtime with one container, whose state a test sets, and a streaming server that echoes.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use swiftlet_model::BoxFuture;
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerState, ContainerStatus, ExecOutput, Image, ImageAuth,
    ImageFilesystem, LinuxResources, Runtime, RuntimeError, RuntimePod, RuntimeStatus,
    RuntimeVersion, SandboxConfig, SandboxState, SandboxStatus,
};
use swiftlet_model::streaming::{Streaming, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The runtime.
pub(crate) struct Played {
    pub(crate) pod: PodKey,
    /// `None`: the container is gone.
    pub(crate) state: Mutex<Option<ContainerState>>,
    /// URL of the streaming server.
    pub(crate) url: String,
    /// What was asked of it.
    pub(crate) asked: Mutex<Vec<(Vec<String>, Streams)>>,
}

type Answer<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

fn not_played<'a, T: Send + 'a>(call: &'static str) -> Answer<'a, T> {
    let message = "not played".to_owned();
    Box::pin(async move { Err(RuntimeError::Refused { call, message }) })
}

impl Played {
    pub(crate) fn set(&self, state: Option<ContainerState>) {
        *self.state.lock().unwrap() = state;
    }

    fn status(&self, id: &ContainerId) -> Result<ContainerStatus, RuntimeError> {
        let state = self.state.lock().unwrap().clone();
        let state = state.ok_or_else(|| RuntimeError::NotFound {
            call: "ContainerStatus",
            message: id.to_string(),
        })?;
        Ok(ContainerStatus {
            id: id.clone(),
            name: ContainerName::from("main"),
            sandbox: SandboxId::from("sandbox"),
            attempt: 0,
            state,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            exit: None,
            image: String::new(),
            image_id: String::new(),
            spec_hash: None,
        })
    }

    fn stream(&self, command: &[String], streams: Streams) -> Answer<'_, String> {
        let asked = (command.to_vec(), streams);
        self.asked.lock().unwrap().push(asked);
        let url = self.url.clone();
        Box::pin(async move { Ok(url) })
    }
}

impl Streaming for Played {
    fn exec<'a>(
        &'a self,
        _: &'a ContainerId,
        command: &'a [String],
        streams: Streams,
    ) -> Answer<'a, String> {
        self.stream(command, streams)
    }

    fn attach<'a>(&'a self, _: &'a ContainerId, streams: Streams) -> Answer<'a, String> {
        self.stream(&[], streams)
    }

    fn port_forward<'a>(&'a self, _: &'a SandboxId, _: &'a [u16]) -> Answer<'a, String> {
        self.stream(&[], Streams::default())
    }
}

impl Runtime for Played {
    fn container_status<'a>(&'a self, id: &'a ContainerId) -> Answer<'a, ContainerStatus> {
        let status = self.status(id);
        Box::pin(async move { status })
    }

    fn pod<'a>(&'a self, _: &'a PodUid) -> Answer<'a, RuntimePod> {
        let mut pod = RuntimePod::empty(self.pod.clone());
        pod.sandboxes.push(SandboxStatus {
            id: SandboxId::from("sandbox"),
            pod: self.pod.clone(),
            attempt: 0,
            state: SandboxState::Ready,
            created_at: Timestamp::UNIX_EPOCH,
            ips: Vec::new(),
        });
        Box::pin(async move { Ok(pod) })
    }

    fn list_pods(&self) -> Answer<'_, Vec<RuntimePod>> {
        let mut pod = RuntimePod::empty(self.pod.clone());
        pod.containers.extend(self.status(&ContainerId::from("c")));
        Box::pin(async move { Ok(vec![pod]) })
    }

    fn version(&self) -> Answer<'_, RuntimeVersion> {
        not_played("Version")
    }

    fn status(&self) -> Answer<'_, RuntimeStatus> {
        not_played("Status")
    }

    fn run_sandbox<'a>(&'a self, _: &'a SandboxConfig, _: Deadline) -> Answer<'a, SandboxId> {
        not_played("RunPodSandbox")
    }

    fn stop_sandbox<'a>(&'a self, _: &'a SandboxId) -> Answer<'a, ()> {
        not_played("StopPodSandbox")
    }

    fn remove_sandbox<'a>(&'a self, _: &'a SandboxId) -> Answer<'a, ()> {
        not_played("RemovePodSandbox")
    }

    fn sandbox_status<'a>(&'a self, _: &'a SandboxId) -> Answer<'a, SandboxStatus> {
        not_played("PodSandboxStatus")
    }

    fn create_container<'a>(
        &'a self,
        _: &'a SandboxId,
        _: &'a ContainerConfig,
        _: &'a SandboxConfig,
    ) -> Answer<'a, ContainerId> {
        not_played("CreateContainer")
    }

    fn start_container<'a>(&'a self, _: &'a ContainerId) -> Answer<'a, ()> {
        not_played("StartContainer")
    }

    fn stop_container<'a>(&'a self, _: &'a ContainerId, _: Duration) -> Answer<'a, ()> {
        not_played("StopContainer")
    }

    fn remove_container<'a>(&'a self, _: &'a ContainerId) -> Answer<'a, ()> {
        not_played("RemoveContainer")
    }

    fn exec_sync<'a>(
        &'a self,
        _: &'a ContainerId,
        _: &'a [String],
        _: Duration,
    ) -> Answer<'a, ExecOutput> {
        not_played("ExecSync")
    }

    fn update_resources<'a>(&'a self, _: &'a ContainerId, _: &'a LinuxResources) -> Answer<'a, ()> {
        not_played("UpdateContainerResources")
    }

    fn reopen_log<'a>(&'a self, _: &'a ContainerId) -> Answer<'a, ()> {
        not_played("ReopenContainerLog")
    }

    fn image<'a>(&'a self, _: &'a str) -> Answer<'a, Option<Image>> {
        not_played("ImageStatus")
    }

    fn list_images(&self) -> Answer<'_, Vec<Image>> {
        not_played("ListImages")
    }

    fn pull_image<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a ImageAuth>,
        _: &'a SandboxConfig,
    ) -> Answer<'a, String> {
        not_played("PullImage")
    }

    fn remove_image<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        not_played("RemoveImage")
    }

    fn image_filesystem(&self) -> Answer<'_, Option<ImageFilesystem>> {
        not_played("ImageFsInfo")
    }
}

/// A streaming server that agrees to every upgrade and sends back what it gets; answers its URL.
/// One connection at a time is enough for no test: each has a task.
pub(crate) async fn echo_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await?);
                }
                let agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                              Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\
                              \r\n\r\n";
                stream.write_all(agreed.as_bytes()).await?;
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await?;
                to.shutdown().await
            });
        }
    });
    format!("http://{address}/exec/token")
}
