//! The API door: Kubernetes' verbs on encoded objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// A group, version and plural resource name, as in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceName {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name.
    pub plural: &'static str,
}

/// The resources that the control plane's own clients use.
pub mod resources {
    use super::ResourceName;

    const fn core(plural: &'static str) -> ResourceName {
        ResourceName {
            group: "",
            version: "v1",
            plural,
        }
    }

    const fn apps(plural: &'static str) -> ResourceName {
        of_group("apps", plural)
    }

    const fn of_group(group: &'static str, plural: &'static str) -> ResourceName {
        ResourceName {
            group,
            version: "v1",
            plural,
        }
    }

    /// `v1/namespaces`.
    pub const NAMESPACES: ResourceName = core("namespaces");
    /// `v1/nodes`.
    pub const NODES: ResourceName = core("nodes");
    /// `v1/pods`.
    pub const PODS: ResourceName = core("pods");
    /// `v1/events`.
    pub const EVENTS: ResourceName = core("events");
    /// `v1/configmaps`.
    pub const CONFIG_MAPS: ResourceName = core("configmaps");
    /// `v1/secrets`.
    pub const SECRETS: ResourceName = core("secrets");
    /// `v1/serviceaccounts`.
    pub const SERVICE_ACCOUNTS: ResourceName = core("serviceaccounts");
    /// `authentication.k8s.io/v1/selfsubjectreviews`: answered, not stored.
    pub const SELF_SUBJECT_REVIEWS: ResourceName =
        of_group("authentication.k8s.io", "selfsubjectreviews");
    /// `authentication.k8s.io/v1/tokenreviews`: answered, not stored.
    pub const TOKEN_REVIEWS: ResourceName = of_group("authentication.k8s.io", "tokenreviews");
    /// `authorization.k8s.io/v1/selfsubjectaccessreviews`: answered, not stored.
    pub const SELF_SUBJECT_ACCESS_REVIEWS: ResourceName =
        of_group("authorization.k8s.io", "selfsubjectaccessreviews");
    /// `authorization.k8s.io/v1/subjectaccessreviews`: answered, not stored.
    pub const SUBJECT_ACCESS_REVIEWS: ResourceName =
        of_group("authorization.k8s.io", "subjectaccessreviews");
    /// `v1/services`.
    pub const SERVICES: ResourceName = core("services");
    /// `v1/persistentvolumes`.
    pub const PERSISTENT_VOLUMES: ResourceName = core("persistentvolumes");
    /// `v1/persistentvolumeclaims`.
    pub const PERSISTENT_VOLUME_CLAIMS: ResourceName = core("persistentvolumeclaims");
    /// `storage.k8s.io/v1/storageclasses`.
    pub const STORAGE_CLASSES: ResourceName = of_group("storage.k8s.io", "storageclasses");
    /// `node.k8s.io/v1/runtimeclasses`.
    pub const RUNTIME_CLASSES: ResourceName = of_group("node.k8s.io", "runtimeclasses");
    /// `scheduling.k8s.io/v1/priorityclasses`.
    pub const PRIORITY_CLASSES: ResourceName = of_group("scheduling.k8s.io", "priorityclasses");
    /// `apps/v1/deployments`.
    pub const DEPLOYMENTS: ResourceName = apps("deployments");
    /// `apps/v1/replicasets`.
    pub const REPLICA_SETS: ResourceName = apps("replicasets");
    /// `coordination.k8s.io/v1/leases`.
    pub const LEASES: ResourceName = ResourceName {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
    };
}

/// One object of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The resource.
    pub resource: ResourceName,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `status`, `binding`, `scale`, `token`; empty for the object itself.
    pub subresource: &'static str,
}

impl ObjectName {
    /// The object itself.
    pub fn new(resource: ResourceName, namespace: &str, name: &str) -> Self {
        Self {
            resource,
            namespace: namespace.into(),
            name: name.into(),
            subresource: "",
        }
    }

    /// Its `status`.
    pub fn status(resource: ResourceName, namespace: &str, name: &str) -> Self {
        Self {
            subresource: "status",
            ..Self::new(resource, namespace, name)
        }
    }

    /// Another subresource.
    #[must_use]
    pub fn with_subresource(mut self, subresource: &'static str) -> Self {
        self.subresource = subresource;
        self
    }
}

/// What to list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The resource.
    pub resource: ResourceName,
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    /// `labelSelector`; empty for all.
    pub label_selector: String,
    /// `fieldSelector`; empty for all.
    pub field_selector: String,
}

impl Selection {
    /// All objects of a resource.
    pub fn all(resource: ResourceName) -> Self {
        Self {
            resource,
            namespace: None,
            label_selector: String::new(),
            field_selector: String::new(),
        }
    }
}

/// A list at one revision.
#[derive(Clone, Debug)]
pub struct RawList {
    /// The encoded objects, shared with the store.
    pub items: Vec<Bytes>,
    /// `metadata.resourceVersion` of the list.
    pub resource_version: u64,
}

/// The kind of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// The object came into the selection.
    Added,
    /// It changed within it.
    Modified,
    /// It left it, or was deleted.
    Deleted,
    /// Nothing changed; `resource_version` has been reached.
    Bookmark,
}

/// One change.
#[derive(Clone, Debug)]
pub struct RawEvent {
    /// What happened.
    pub kind: WatchKind,
    /// The encoded object; for a deletion its last state with the deletion's resourceVersion; for a
    /// bookmark empty.
    pub object: Bytes,
    /// The revision of the change.
    pub resource_version: u64,
}

/// Changes in order. Ends after an error; code 410 means "too old, list again".
pub type RawWatch = BoxStream<'static, Result<RawEvent, ApiError>>;

/// How to patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteParameters {
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
    /// `propagationPolicy`: `Foreground`, `Background`, `Orphan`.
    pub propagation_policy: Option<String>,
}

/// A refusal, as the API says it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message.as_deref().unwrap_or("unknown error"))]
pub struct ApiError(pub Box<Status>);

impl ApiError {
    /// The HTTP status code.
    pub fn code(&self) -> i32 {
        self.0.code.unwrap_or(500)
    }

    /// `status.reason`.
    pub fn reason(&self) -> &str {
        self.0.reason.as_deref().unwrap_or_default()
    }

    /// No such object.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// The object changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The revision is no longer kept.
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }
}

/// Kubernetes' verbs. Calls pass the same chain as a request from outside, under the identity that
/// the door was made for. Every method answers the encoded object as it is stored now.
pub trait Api: Send + Sync {
    /// Reads one object.
    fn get<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<Bytes, ApiError>>;

    /// Lists a selection at the newest revision.
    fn list<'a>(&'a self, selection: &'a Selection) -> BoxFuture<'a, Result<RawList, ApiError>>;

    /// Watches a selection after `resource_version`.
    fn watch(&self, selection: &Selection, resource_version: u64) -> Result<RawWatch, ApiError>;

    /// Creates an object (or a subresource such as `binding`, `token` or `eviction`, where
    /// `name.name` is the parent's).
    /// `name.name` may be empty when the body has `generateName`.
    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;

    /// Replaces an object; a resourceVersion in the body is a precondition.
    fn update<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;

    /// Patches an object.
    fn patch<'a>(
        &'a self,
        name: &'a ObjectName,
        kind: PatchKind,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;

    /// Deletes an object, or begins its graceful deletion.
    fn delete<'a>(
        &'a self,
        name: &'a ObjectName,
        parameters: DeleteParameters,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>>;
}

/// Who makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name: the certificate's common name, or that of a token's service account.
    pub name: String,
    /// The service account's uid; empty for other users.
    pub uid: String,
    /// Groups: the certificate's organisations, and `system:authenticated`.
    pub groups: Vec<String>,
    /// What else a token says: to which pod and node it is bound.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The node's name if this is a node agent (`system:node:<name>` in `system:nodes`).
    pub fn node_name(&self) -> Option<&str> {
        let member = self.groups.iter().any(|group| group == "system:nodes");
        self.name.strip_prefix("system:node:").filter(|_| member)
    }
}
