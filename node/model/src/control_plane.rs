//! The control plane as the node sees it: desired pods come in, statuses go out.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus, Service};
use tokio::sync::mpsc;

use crate::ids::PodKey;

/// Most messages of the control plane that wait for the kubelet.
pub const CONTROL_QUEUE_MAX: usize = 1024;

/// What the control plane says.
#[derive(Clone, Debug)]
pub enum ControlPlaneEvent {
    /// All pods of this node: what is not listed does not exist there. After each (re)connect.
    Pods(Vec<Arc<Pod>>),
    /// A pod was created or changed.
    PodUpsert(Arc<Pod>),
    /// A pod's object is gone.
    PodRemoved(PodKey),
    /// A ConfigMap or Secret that a pod names changed.
    Referenced(ObjectRef),
    /// The connection is lost; the last known pods stay.
    Disconnected,
}

/// Where they arrive.
pub type ControlPlaneReceiver = mpsc::Receiver<ControlPlaneEvent>;

/// The kind of an object that a pod may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefKind {
    /// `v1/ConfigMap`.
    ConfigMap,
    /// `v1/Secret`.
    Secret,
    /// `node.k8s.io/v1/RuntimeClass`; no namespace.
    RuntimeClass,
    /// `v1/PersistentVolumeClaim`.
    PersistentVolumeClaim,
    /// `v1/PersistentVolume`; no namespace.
    PersistentVolume,
    /// `v1/Node`: the node's own, for its labels and taints; no namespace.
    Node,
}

impl RefKind {
    /// The kind's name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::RuntimeClass => "RuntimeClass",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PersistentVolume => "PersistentVolume",
            Self::Node => "Node",
        }
    }

    /// The kind of this name in the API.
    pub fn of(kind: &str) -> Option<Self> {
        let all = [
            Self::ConfigMap,
            Self::Secret,
            Self::RuntimeClass,
            Self::PersistentVolumeClaim,
            Self::PersistentVolume,
            Self::Node,
        ];
        all.into_iter().find(|one| one.as_str() == kind)
    }

    /// Kubernetes' word in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::RuntimeClass => "runtimeclass",
            Self::PersistentVolumeClaim => "persistentvolumeclaim",
            Self::PersistentVolume => "persistentvolume",
            Self::Node => "node",
        }
    }
}

/// An object that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: RefKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The control plane. Behind it stands NodeLink, or any kube-apiserver.
pub trait ControlPlane: Send + Sync {
    /// Whether it has said anything since this program started. Until then pods may start without
    /// what only a control plane has a use for.
    fn ever_connected(&self) -> bool;

    /// Stores a pod's status; returns when it is stored, or was refused for good (the pod is gone).
    /// Calls for one pod are made one after another, by that pod's publisher.
    fn publish_status<'a>(
        &'a self,
        pod: &'a PodKey,
        status: &'a PodStatus,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>>;

    /// Says that nothing of a pod that is being deleted is left here; its object may go.
    fn pod_gone<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ControlPlaneError>>;

    /// Registers the node, or brings its status up to date.
    fn publish_node<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Result<(), ControlPlaneError>>;

    /// Renews the node's lease, which expires after `duration_s` seconds.
    fn renew_lease(&self, duration_s: u32) -> BoxFuture<'_, Result<(), ControlPlaneError>>;

    /// Sends an Event. Best effort: it is dropped when the queue is full.
    fn record(&self, event: Event);

    /// The referenced object's `data` (Secret values decoded), waiting for the first answer.
    /// `Ok(None)`: there is no such object.
    fn referenced<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<ReferencedData>, ControlPlaneError>>;

    /// No pod names the object any more.
    fn forget(&self, object: &ObjectRef);

    /// A token for a pod's service account (`TokenRequest`), bound to the pod.
    fn service_account_token<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<Token, ControlPlaneError>>;

    /// The Services of a namespace, for the environment of its containers; the control plane's
    /// last word, waiting for the first answer. The API's own Service is `kubernetes` in `default`,
    /// which is asked for like any other namespace.
    fn services<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Vec<Service>>, ControlPlaneError>>;

    /// No pod of this namespace is here any more.
    fn forget_services(&self, namespace: &str);

    /// The whole object, as JSON, of any kind that a pod may name. `Ok(None)`: there is none.
    fn object<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Bytes>, ControlPlaneError>>;

    /// Shows a static pod in the API; one of the same hash that is there already is success.
    fn create_mirror_pod<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>>;

    /// Removes a mirror pod at once; a missing one, or another uid, is success.
    fn delete_mirror_pod<'a>(
        &'a self,
        pod: &'a PodKey,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>>;
}

/// A request for a token: `authentication.k8s.io/v1` `TokenRequest`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    /// The pod that the token is bound to.
    pub pod: PodKey,
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// Who shall accept it; empty for the API server.
    pub audience: String,
    /// How long it shall be valid, in seconds.
    pub expiration_s: i64,
}

/// A service account's token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The JWT.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token must not be in a log.
        f.debug_struct("Token")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// What a ConfigMap or Secret holds.
pub type ReferencedData = Arc<std::collections::BTreeMap<String, Vec<u8>>>;

/// What can go wrong between node and control plane.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlPlaneError {
    /// Not connected, or the connection was lost before the answer: repeat it.
    #[error("the control plane cannot be reached")]
    Disconnected,
    /// The control plane refused for good.
    #[error("the control plane refused: {0}")]
    Refused(String),
}
