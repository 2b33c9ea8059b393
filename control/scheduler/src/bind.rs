//! Writing a decision.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::{Client, ClientError};

use crate::framework::Bind;
use crate::profile::Profile;
use crate::queue::Attempt;

/// Why a pod was not bound.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BindError {
    /// The API refused the binding.
    #[error("binding rejected: {0}")]
    Rejected(#[from] ClientError),
    /// A plugin could not prepare the node.
    #[error("{plugin}: {message}")]
    PreBind {
        /// The plugin.
        plugin: &'static str,
        /// Its words.
        message: String,
    },
}

impl BindError {
    /// Whether the pod no longer needs a node: it is gone, replaced, or bound by somebody else.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Rejected(error) => error.is_not_found() || error.is_conflict(),
            Self::PreBind { .. } => false,
        }
    }
}

/// A binding that has been tried.
pub(crate) struct Bound {
    pub(crate) attempt: Attempt,
    pub(crate) node: String,
    pub(crate) result: Result<(), BindError>,
}

/// Binds through `pods/<name>/binding`.
pub(crate) struct DefaultBinder;

impl Bind for DefaultBinder {
    fn bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a Pod,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), BindError>> {
        Box::pin(async move { Ok(client.bind(pod, node).await?) })
    }
}

/// PreBind, then Bind.
pub(crate) async fn bind(
    profile: Arc<Profile>,
    client: Client,
    attempt: Attempt,
    node: String,
) -> Bound {
    let result = write(&profile, &client, &attempt.pod, &node).await;
    Bound {
        attempt,
        node,
        result,
    }
}

async fn write(profile: &Profile, client: &Client, pod: &Pod, node: &str) -> Result<(), BindError> {
    for plugin in &profile.pre_bind {
        plugin.pre_bind(client, pod, node).await?;
    }
    profile.bind.bind(client, pod, node).await
}
