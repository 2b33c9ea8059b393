//! The objects that pods name, as the API holds them now.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::Deserialize;
use swiftlet_client::api::{ResourceName, resources};

use super::ObjectId;
use crate::objects::head;

/// Kind of the claims, whose volumes a node may read through them.
pub(super) const CLAIM: &str = "PersistentVolumeClaim";
/// Kind of the volumes that claims are bound to.
pub(super) const VOLUME: &str = "PersistentVolume";
/// Kind of which each node reads its own.
pub(super) const NODE: &str = "Node";
/// Kind of which nodes read whole namespaces.
pub(super) const SERVICE: &str = "Service";
/// Kind that says how a pod is run.
pub(super) const RUNTIME_CLASS: &str = "RuntimeClass";

/// What pods name, and the resource that serves it.
pub(super) const KINDS: [(&str, ResourceName); 7] = [
    ("ConfigMap", resources::CONFIG_MAPS),
    ("Secret", resources::SECRETS),
    (SERVICE, resources::SERVICES),
    (RUNTIME_CLASS, resources::RUNTIME_CLASSES),
    (CLAIM, resources::PERSISTENT_VOLUME_CLAIMS),
    (VOLUME, resources::PERSISTENT_VOLUMES),
    (NODE, resources::NODES),
];

/// The kind of a resource; `None` for pods.
pub(super) fn kind_of(resource: ResourceName) -> Option<&'static str> {
    let found = KINDS.iter().find(|(_, served)| *served == resource);
    found.map(|(kind, _)| *kind)
}

/// The resource of a kind, with the kind as this room writes it.
pub(crate) fn known_kind(kind: &str) -> Option<(&'static str, ResourceName)> {
    KINDS.iter().find(|(known, _)| *known == kind).copied()
}

/// All objects of [`KINDS`].
#[derive(Default)]
pub(super) struct Known {
    objects: HashMap<ObjectId, Bytes>,
    /// Services by namespace and name: nodes read them by namespace.
    services: BTreeMap<String, BTreeMap<String, Bytes>>,
    /// The volumes of claims, by namespace and name of the claim: each answer about a volume looks
    /// for them.
    volumes: HashMap<String, HashMap<String, String>>,
}

impl Known {
    /// A fresh list: what is not in it is gone.
    pub(super) fn replace(&mut self, kind: &'static str, items: Vec<Bytes>) {
        if kind == SERVICE {
            self.services.clear();
        } else {
            self.objects.retain(|object, _| object.kind != kind);
        }
        if kind == CLAIM {
            self.volumes.clear();
        }
        for object in items {
            if let Some(id) = object_id(kind, &object) {
                self.put(id, object);
            }
        }
    }

    /// Keeps an object's newest state.
    pub(super) fn put(&mut self, id: ObjectId, object: Bytes) {
        if id.kind == SERVICE {
            let services = self.services.entry(id.namespace).or_default();
            services.insert(id.name, object);
        } else {
            if id.kind == CLAIM {
                self.put_volume(&id, bound_volume(&object));
            }
            self.objects.insert(id, object);
        }
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, id: &ObjectId) {
        if id.kind != SERVICE {
            if id.kind == CLAIM {
                self.put_volume(id, None);
            }
            self.objects.remove(id);
        } else if let Some(services) = self.services.get_mut(&id.namespace) {
            services.remove(&id.name);
            if services.is_empty() {
                self.services.remove(&id.namespace);
            }
        }
    }

    /// An object's newest state.
    pub(super) fn get(&self, id: &ObjectId) -> Option<&Bytes> {
        self.objects.get(id)
    }

    /// All Services of a namespace.
    pub(super) fn services(&self, namespace: &str) -> Vec<Bytes> {
        let services = self.services.get(namespace).into_iter();
        services.flat_map(BTreeMap::values).cloned().collect()
    }

    /// The volume that a claim is bound to.
    pub(super) fn volume_of(&self, namespace: &str, claim: &str) -> Option<&str> {
        let volumes = self.volumes.get(namespace)?;
        volumes.get(claim).map(String::as_str)
    }

    fn put_volume(&mut self, claim: &ObjectId, volume: Option<String>) {
        if let Some(volume) = volume {
            let volumes = self.volumes.entry(claim.namespace.clone()).or_default();
            volumes.insert(claim.name.clone(), volume);
        } else if let Some(volumes) = self.volumes.get_mut(&claim.namespace) {
            volumes.remove(&claim.name);
            if volumes.is_empty() {
                self.volumes.remove(&claim.namespace);
            }
        }
    }
}

/// `spec.volumeName` of a claim; `None` while it is not bound.
pub(super) fn bound_volume(claim: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Claim {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        volume_name: Option<String>,
    }
    let claim: Claim = serde_json::from_slice(claim).ok()?;
    claim.spec.volume_name.filter(|name| !name.is_empty())
}

/// The name of an encoded object.
pub(super) fn object_id(kind: &'static str, object: &[u8]) -> Option<ObjectId> {
    let head = head(object)?;
    Some(ObjectId {
        kind,
        namespace: head.metadata.namespace.to_string(),
        name: head.metadata.name.to_string(),
    })
}
