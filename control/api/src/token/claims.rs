//! What a token says (Kubernetes: `pkg/serviceaccount/claims.go`).

use serde::{Deserialize, Serialize};

/// The claims of a service account's token. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Claims {
    /// For whom it is.
    pub(crate) aud: Vec<String>,
    /// When it ends.
    pub(crate) exp: i64,
    /// When it was made.
    pub(crate) iat: i64,
    /// Who made it.
    pub(crate) iss: String,
    /// A number of its own.
    pub(crate) jti: String,
    /// What Kubernetes adds.
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: KubernetesClaims,
    /// When it begins.
    pub(crate) nbf: i64,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub(crate) sub: String,
}

/// What the token belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KubernetesClaims {
    /// The service account's namespace.
    pub(crate) namespace: String,
    /// The node of the bound pod, or the bound node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Bound>,
    /// The bound pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Bound>,
    /// The bound secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Bound>,
    /// The service account.
    pub(crate) serviceaccount: Bound,
    /// When the client should have fetched a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// A name, and the uid of the object that bore it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Bound {
    /// `metadata.name`.
    pub(crate) name: String,
    /// `metadata.uid`; empty for a node that is gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// `system:serviceaccount:<namespace>:<name>`.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
