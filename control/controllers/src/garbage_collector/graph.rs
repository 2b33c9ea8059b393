//! Who depends on whom, from the informers' snapshots.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use swiftlet_client::api::{ResourceName, resources};
use swiftlet_client::{Object, ObjectKey};

use crate::informers::{OWNER, Stores};

/// The kinds that are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Pod,
    ReplicaSet,
    Deployment,
}

/// One object; the uid tells it from a successor of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) key: ObjectKey,
    pub(super) uid: String,
}

impl Kind {
    /// The kind of an owner, if it is one of ours.
    pub(super) fn of(owner: &OwnerReference) -> Option<Self> {
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "Pod") => Some(Self::Pod),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "Deployment") => Some(Self::Deployment),
            _ => None,
        }
    }

    pub(super) fn resource(self) -> ResourceName {
        match self {
            Self::Pod => resources::PODS,
            Self::ReplicaSet => resources::REPLICA_SETS,
            Self::Deployment => resources::DEPLOYMENTS,
        }
    }
}

/// The resource of an owner of any kind that the server serves, and whether it has a namespace.
pub(super) fn owner_resource(owner: &OwnerReference) -> Option<(ResourceName, bool)> {
    if let Some(kind) = Kind::of(owner) {
        return Some((kind.resource(), true));
    }
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "Node") => Some((resources::NODES, false)),
        ("v1", "Namespace") => Some((resources::NAMESPACES, false)),
        ("v1", "ConfigMap") => Some((resources::CONFIG_MAPS, true)),
        ("v1", "Secret") => Some((resources::SECRETS, true)),
        ("v1", "ServiceAccount") => Some((resources::SERVICE_ACCOUNTS, true)),
        _ => None,
    }
}

impl Item {
    pub(super) fn new<T: Object>(kind: Kind, object: &T) -> Self {
        Self {
            kind,
            key: object.key(),
            uid: object.uid().to_owned(),
        }
    }

    pub(super) fn owner(kind: Kind, namespace: &str, owner: &OwnerReference) -> Self {
        Self {
            kind,
            key: ObjectKey::new(namespace, &owner.name),
            uid: owner.uid.clone(),
        }
    }
}

/// The metadata of an item, if the informer shows it.
pub(super) fn metadata(stores: &Stores, item: &Item) -> Option<ObjectMeta> {
    let meta = match item.kind {
        Kind::Pod => stores
            .pods
            .get(&item.key)
            .map(|object| object.metadata.clone()),
        Kind::ReplicaSet => stores
            .replica_sets
            .get(&item.key)
            .map(|object| object.metadata.clone()),
        Kind::Deployment => stores
            .deployments
            .get(&item.key)
            .map(|object| object.metadata.clone()),
    };
    meta.filter(|meta| meta.uid.as_deref() == Some(&item.uid))
}

/// The objects that name this uid as an owner.
pub(super) fn dependents(stores: &Stores, uid: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let pods = stores.pods.snapshot();
    items.extend(
        pods.by_index(OWNER, uid)
            .map(|it| Item::new::<Pod>(Kind::Pod, it)),
    );
    let sets = stores.replica_sets.snapshot();
    items.extend(
        sets.by_index(OWNER, uid)
            .map(|it| Item::new::<ReplicaSet>(Kind::ReplicaSet, it)),
    );
    let deployments = stores.deployments.snapshot();
    items.extend(
        deployments
            .by_index(OWNER, uid)
            .map(|it| Item::new::<Deployment>(Kind::Deployment, it)),
    );
    items
}
