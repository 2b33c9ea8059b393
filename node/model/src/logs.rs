//! Container logs on the node's disk, as files that are rotated.
//!
//! The runtime writes a container's log, the kubelet keeps it small: it moves the file away and has
//! the runtime open a new one ([`crate::runtime::Runtime::reopen_log`]).

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;

use crate::ids::PodKey;

/// Log files. Every method may be repeated: "already so" is success.
pub trait ContainerLogs: Send + Sync {
    /// The pods that have a log folder.
    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodKey>, LogError>>;

    /// Sizes of these files in bytes, in their order; `None` for one that is not there.
    fn sizes(&self, logs: Vec<PathBuf>) -> BoxFuture<'_, Result<Vec<Option<u64>>, LogError>>;

    /// Names of the files that were made of this log: all beside it that begin with its name and a
    /// point.
    fn made_of<'a>(&'a self, log: &'a Path) -> BoxFuture<'a, Result<Vec<String>, LogError>>;

    /// Removes a file. A missing one is success.
    fn remove<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>>;

    /// Makes `<file>.gz` of a file, by way of `<file>.tmp`, and then removes the file.
    fn compress<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>>;

    /// Gives a file another name in the same folder. Never over a file that is there.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), LogError>>;
}

/// What went wrong with a log file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {what} {}: {cause}", path.display())]
pub struct LogError {
    /// `list`, `look at`, `remove`, `compress`, `rename`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The kernel's words.
    pub cause: String,
}
