//! What a runtime tells by itself, and what it knows of processes: the sources of lifecycle events
//! where the kernel's cannot be used.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;

use super::{Runtime, RuntimeError, RuntimePod};
use crate::ids::{ContainerId, PodUid};
use crate::lifecycle::KernelExit;

/// A runtime that can be a source of lifecycle events.
pub trait RuntimeEvents: Runtime {
    /// What happens to containers from now on, as the runtime tells it. Connects when first polled,
    /// and ends with an error: the last item.
    ///
    /// # Errors
    /// [`RuntimeError::Unsupported`] as the first item from a runtime that tells nothing by itself.
    fn container_events(&self) -> BoxStream<'static, Result<ContainerEvent, RuntimeError>>;

    /// The first process of a container, or of a sandbox.
    fn first_process<'a>(
        &'a self,
        id: &'a ContainerId,
        of: ProcessOf,
    ) -> BoxFuture<'a, Result<FirstProcess, RuntimeError>>;

    /// One pod as [`Runtime::list_pods`] has it: nothing is asked for that a single container could
    /// make the runtime hang on. Empty if the runtime does not know it.
    fn listed_pod<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<Vec<RuntimePod>, RuntimeError>>;

    /// The runtime's own process, as this program's pid namespace numbers it; `None` if it has no
    /// number there.
    fn daemon(&self) -> BoxFuture<'_, Result<Option<u32>, RuntimeError>>;
}

/// Something that the runtime tells of one container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEvent {
    /// The container, or the sandbox.
    pub container: ContainerId,
    /// Its pod; `None` if the runtime has forgotten it already.
    pub pod: Option<PodUid>,
    /// What happened.
    pub kind: ContainerEventKind,
    /// When, by the runtime's clock.
    pub at: Timestamp,
    /// How it ended, if it did and the runtime says so in the event.
    pub exit: Option<KernelExit>,
}

/// What happened to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEventKind {
    /// It is there, but does not run.
    Created,
    /// It runs.
    Started,
    /// Its first process is gone.
    Stopped,
    /// It is there no more.
    Deleted,
}

/// Whose first process is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessOf {
    /// A container.
    Container,
    /// A sandbox.
    Sandbox,
}

/// A container's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstProcess {
    /// It runs under this number of the runtime's pid namespace.
    Running(u32),
    /// It has not begun.
    NotYet,
    /// It has ended, or the container is gone.
    Ended,
    /// The runtime does not tell.
    Untold,
}
