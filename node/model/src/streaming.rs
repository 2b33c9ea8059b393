//! Streams into pods: the runtime serves them itself, on an address of this machine.

use futures::future::BoxFuture;

use crate::ids::{ContainerId, SandboxId};
use crate::runtime::RuntimeError;

/// Which streams of a process are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// They are a terminal.
    pub tty: bool,
}

/// Prepares streams. Each answer is a URL on loopback that takes one connection, which must come
/// within a minute.
pub trait Streaming: Send + Sync {
    /// A command in a running container.
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        streams: Streams,
    ) -> BoxFuture<'a, Result<String, RuntimeError>>;

    /// The first process of a running container.
    fn attach<'a>(
        &'a self,
        id: &'a ContainerId,
        streams: Streams,
    ) -> BoxFuture<'a, Result<String, RuntimeError>>;

    /// Ports of a sandbox; none: the client says which when it is connected.
    fn port_forward<'a>(
        &'a self,
        id: &'a SandboxId,
        ports: &'a [u16],
    ) -> BoxFuture<'a, Result<String, RuntimeError>>;
}
