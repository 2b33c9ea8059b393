//! Credentials for registries that the node itself has, for pods whose own do not fit.

use std::collections::BTreeMap;

use futures::future::BoxFuture;

/// Files of credentials on the node.
pub trait NodeCredentials: Send + Sync {
    /// Their contents, as a Secret of pull credentials holds them (`.dockerconfigjson`,
    /// `.dockercfg`): the first that can be understood counts, and it alone. What cannot be read is
    /// left out. Read anew each time: a file that was changed counts at once.
    fn documents(&self) -> BoxFuture<'_, Vec<BTreeMap<String, Vec<u8>>>>;
}
