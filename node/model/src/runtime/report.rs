//! What the runtime reports.

use jiff::Timestamp;

use crate::ids::{ContainerId, ContainerName, PodKey, SandboxId};

/// State of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Its process runs.
    Ready,
    /// It has stopped, or the network is gone.
    NotReady,
}

/// A sandbox as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The runtime's id.
    pub id: SandboxId,
    /// The pod.
    pub pod: PodKey,
    /// The attempt that made it.
    pub attempt: u32,
    /// Ready or not.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Addresses, the first one primary; empty in lists and for the host's network.
    pub ips: Vec<String>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Exit code; 128 + signal if a signal ended it.
    pub code: i32,
    /// The kernel killed it for memory.
    pub oom_killed: bool,
    /// When.
    pub at: Timestamp,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// More words, often none.
    pub message: String,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// The runtime's id.
    pub id: ContainerId,
    /// The container's name in the pod, from its labels.
    pub name: ContainerName,
    /// The sandbox that it is in.
    pub sandbox: SandboxId,
    /// The attempt that made it: the API's restart count.
    pub attempt: u32,
    /// Created, running, exited.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was started, if it was and the status was asked for.
    pub started_at: Option<Timestamp>,
    /// How it ended, if it did and the status was asked for.
    pub exit: Option<ContainerExit>,
    /// The image as the pod named it.
    pub image: String,
    /// The image's id in the runtime (`repo@digest` or an id).
    pub image_id: String,
    /// Hash of the container's spec when it was made, from its annotations.
    pub spec_hash: Option<u64>,
}

/// What the runtime holds for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePod {
    /// The pod.
    pub pod: PodKey,
    /// Its sandboxes, newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// Its containers, newest first.
    pub containers: Vec<ContainerStatus>,
}

impl RuntimePod {
    /// A pod of which the runtime knows nothing.
    pub fn empty(pod: PodKey) -> Self {
        Self {
            pod,
            sandboxes: Vec::new(),
            containers: Vec::new(),
        }
    }

    /// The newest container of that name.
    pub fn newest(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers
            .iter()
            .find(|container| container.name.as_str() == name)
    }
}
