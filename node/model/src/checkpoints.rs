//! Small files in which the node remembers what neither the API nor the runtime can tell.

use std::collections::BTreeMap;

use futures::future::BoxFuture;

/// Keeps whole documents by name. Every method may be repeated.
pub trait Checkpoints: Send + Sync {
    /// What was saved last under this name; `None` if nothing was.
    fn load<'a>(&'a self, name: &'a str)
    -> BoxFuture<'a, Result<Option<Vec<u8>>, CheckpointError>>;

    /// Replaces what is saved under this name. When the answer is there the content is on disk: a
    /// crash leaves the old or the new document, never a part of one.
    fn save<'a>(
        &'a self,
        name: &'a str,
        content: &'a [u8],
    ) -> BoxFuture<'a, Result<(), CheckpointError>>;

    /// Removes what is saved under this name. Missing is success.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), CheckpointError>>;

    /// Everything whose name begins with `prefix`, by name.
    fn load_all<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, Vec<u8>>, CheckpointError>>;
}

/// What can go wrong with a checkpoint.
#[derive(Debug, Clone, thiserror::Error)]
#[error("checkpoint {name}: {cause}")]
pub struct CheckpointError {
    /// The name.
    pub name: String,
    /// What the kernel said.
    pub cause: String,
}
