//! What can go wrong in a reconcile.

use swiftlet_client::ClientError;
use swiftlet_proto::selector::SelectorError;

/// What can go wrong in a reconcile. Every failure is tried again, later and later.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The API refused, or could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The object's selector cannot be used.
    #[error("invalid selector: {0}")]
    Selector(#[from] SelectorError),
    /// A pod template cannot be written as JSON.
    #[error("cannot encode the pod template: {0}")]
    Template(#[source] serde_json::Error),
    /// Another object has the name that the template's hash gives; the next pass takes another
    /// hash.
    #[error("hash collision for replica set {0}")]
    HashCollision(String),
}

impl ControllerError {
    /// Whether this happens in ordinary operation: somebody else was faster.
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_conflict() || error.is_not_found())
    }
}
