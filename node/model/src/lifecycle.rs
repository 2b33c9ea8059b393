//! Pod lifecycle events: hints that something happened to a container, and the door to who is
//! watched.

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::ids::{ContainerId, PodUid};
use crate::runtime::ProcessOf;

/// Most events that wait for the sync loop. A full queue blocks the source if that has a buffer of
/// its own (the kernel's ring, which counts what it drops). The runtime is never made to wait: what
/// it tells meanwhile is counted, and found by a relist.
pub const LIFECYCLE_QUEUE_MAX: usize = 4096;

/// Something that the kernel or the runtime reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLifecycleEvent {
    /// The pod.
    pub pod: PodUid,
    /// What happened.
    pub kind: LifecycleKind,
    /// When, by the kernel's clock turned into wall-clock time, or when the source learned of it.
    pub at: Timestamp,
    /// Who says so.
    pub source: LifecycleSource,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifecycleKind {
    /// The container's own program runs (its exec has returned).
    ContainerStarted {
        /// The container, or the sandbox.
        container: ContainerId,
    },
    /// The container's first process is gone.
    ContainerDied {
        /// The container, or the sandbox.
        container: ContainerId,
        /// How, if the source knows.
        exit: Option<KernelExit>,
    },
    /// Something changed that only the runtime can explain: ask it.
    Changed,
}

/// An exit as the kernel saw it, or as the runtime tells it in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelExit {
    /// Exit code, 0 to 255; 128 + signal where a signal ended the process.
    pub code: i32,
    /// The signal, or 0; a runtime does not tell it.
    pub signal: i32,
    /// The kernel's OOM killer chose this container.
    pub oom_killed: bool,
}

/// Who reported an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleSource {
    /// A BPF program.
    Kernel,
    /// The runtime's own events.
    Runtime,
    /// A descriptor of the container's first process.
    Pidfd,
    /// The slow comparison with the runtime's lists.
    Relist,
}

/// Where lifecycle events arrive.
pub type LifecycleReceiver = mpsc::Receiver<PodLifecycleEvent>;

/// Says which pods are watched.
///
/// A pod is tracked before its sandbox is made, so that no container of it can end unseen.
pub trait PodTracker: Send + Sync {
    /// Watches the pod whose cgroup is `cgroup` (`/kubepods/…/pod<uid>`) and what is made below it.
    /// Repeating it is success; failure means that only the relist sees this pod.
    fn track(&self, pod: &PodUid, cgroup: &str);

    /// Forgets the pod.
    fn untrack(&self, pod: &PodUid);

    /// The runtime has answered that a container, or the sandbox, runs. Sources that cannot see a
    /// start look for its first process now instead of at the next relist.
    fn runs(&self, pod: &PodUid, container: &ContainerId, process: ProcessOf);
}
