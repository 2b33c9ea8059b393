//! The served resources: one file each, with the fields' types, defaults and rules.

mod canonical;
mod configmap;
mod container_defaults;
mod decode;
mod deployment;
mod event;
mod fields;
mod generation;
mod lease;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_defaults;
mod pod_level_defaults;
mod priority_class;
mod qos;
mod replicaset;
mod review;
mod runtime_class;
mod secret;
mod service;
mod serviceaccount;
mod storage_class;

use serde_json::Value;
use swiftlet_client::api::resources;

use crate::registry::{DecodeError, Resource};

pub(crate) use canonical::{Amount, NOT_A_QUANTITY};
pub use decode::{Decoded, TypeMismatch, decode};
pub(crate) use fields::{keep, list_at, text_at};
pub(crate) use qos::qos_class;

/// All resources that are served, in the order of discovery.
pub fn registry() -> &'static [Resource] {
    REGISTRY
}

/// Resources that are answered and not stored.
pub(crate) fn reviews() -> &'static [Resource] {
    review::REVIEWS
}

/// Paths of the members of `original` that `decoded` (what [`check_types`] answered) does not have,
/// as Kubernetes names unknown fields: `spec.containers[0].imagee`. Nulls are not unknown.
///
/// [`check_types`]: crate::registry::Strategy::check_types
pub fn unknown_fields(original: &Value, decoded: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    collect_unknown("", original, decoded, &mut unknown);
    unknown
}

fn collect_unknown(path: &str, original: &Value, decoded: &Value, unknown: &mut Vec<String>) {
    match (original, decoded) {
        (Value::Object(original), Value::Object(decoded)) => {
            for (key, value) in original {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match decoded.get(key) {
                    Some(decoded) => collect_unknown(&path, value, decoded, unknown),
                    None if value.is_null() => (),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(original), Value::Array(decoded)) => {
            for (index, (value, decoded)) in original.iter().zip(decoded).enumerate() {
                collect_unknown(&format!("{path}[{index}]"), value, decoded, unknown);
            }
        }
        _ => (),
    }
}

/// [`Strategy::check_types`](crate::registry::Strategy::check_types) with the typed struct `T`.
fn check_types<T: for<'de> serde::Deserialize<'de>>(object: &Value) -> Result<Value, DecodeError> {
    match decode::<T>(object) {
        Ok(decoded) => Ok(decoded.object),
        Err(mismatch) => Err(DecodeError {
            message: mismatch.message,
        }),
    }
}

const REGISTRY: &[Resource] = &[
    Resource {
        name: resources::CONFIG_MAPS,
        kind: "ConfigMap",
        list_kind: "ConfigMapList",
        singular: "configmap",
        short_names: &["cm"],
        categories: &[],
        namespaced: true,
        subresources: &[],
        strategy: &configmap::ConfigMapStrategy,
    },
    Resource {
        name: resources::EVENTS,
        kind: "Event",
        list_kind: "EventList",
        singular: "event",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        subresources: &[],
        strategy: &event::EventStrategy,
    },
    Resource {
        name: resources::NAMESPACES,
        kind: "Namespace",
        list_kind: "NamespaceList",
        singular: "namespace",
        short_names: &["ns"],
        categories: &[],
        namespaced: false,
        subresources: &["finalize", "status"],
        strategy: &namespace::NamespaceStrategy,
    },
    Resource {
        name: resources::NODES,
        kind: "Node",
        list_kind: "NodeList",
        singular: "node",
        short_names: &["no"],
        categories: &[],
        namespaced: false,
        subresources: &["status"],
        strategy: &node::NodeStrategy,
    },
    Resource {
        name: resources::PERSISTENT_VOLUME_CLAIMS,
        kind: "PersistentVolumeClaim",
        list_kind: "PersistentVolumeClaimList",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        categories: &[],
        namespaced: true,
        subresources: &["status"],
        strategy: &persistent_volume_claim::PersistentVolumeClaimStrategy,
    },
    Resource {
        name: resources::PERSISTENT_VOLUMES,
        kind: "PersistentVolume",
        list_kind: "PersistentVolumeList",
        singular: "persistentvolume",
        short_names: &["pv"],
        categories: &[],
        namespaced: false,
        subresources: &["status"],
        strategy: &persistent_volume::PersistentVolumeStrategy,
    },
    Resource {
        name: resources::PODS,
        kind: "Pod",
        list_kind: "PodList",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        namespaced: true,
        subresources: &[
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
            "resize",
            "status",
        ],
        strategy: &pod::PodStrategy,
    },
    Resource {
        name: resources::SECRETS,
        kind: "Secret",
        list_kind: "SecretList",
        singular: "secret",
        short_names: &[],
        categories: &[],
        namespaced: true,
        subresources: &[],
        strategy: &secret::SecretStrategy,
    },
    Resource {
        name: resources::SERVICE_ACCOUNTS,
        kind: "ServiceAccount",
        list_kind: "ServiceAccountList",
        singular: "serviceaccount",
        short_names: &["sa"],
        categories: &[],
        namespaced: true,
        subresources: &["token"],
        strategy: &serviceaccount::ServiceAccountStrategy,
    },
    Resource {
        name: resources::SERVICES,
        kind: "Service",
        list_kind: "ServiceList",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        namespaced: true,
        subresources: &["status"],
        strategy: &service::ServiceStrategy,
    },
    Resource {
        name: resources::DEPLOYMENTS,
        kind: "Deployment",
        list_kind: "DeploymentList",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        namespaced: true,
        subresources: &["scale", "status"],
        strategy: &deployment::DeploymentStrategy,
    },
    Resource {
        name: resources::REPLICA_SETS,
        kind: "ReplicaSet",
        list_kind: "ReplicaSetList",
        singular: "replicaset",
        short_names: &["rs"],
        categories: &["all"],
        namespaced: true,
        subresources: &["scale", "status"],
        strategy: &replicaset::ReplicaSetStrategy,
    },
    Resource {
        name: resources::LEASES,
        kind: "Lease",
        list_kind: "LeaseList",
        singular: "lease",
        short_names: &[],
        categories: &[],
        namespaced: true,
        subresources: &[],
        strategy: &lease::LeaseStrategy,
    },
    Resource {
        name: resources::RUNTIME_CLASSES,
        kind: "RuntimeClass",
        list_kind: "RuntimeClassList",
        singular: "runtimeclass",
        short_names: &[],
        categories: &[],
        namespaced: false,
        subresources: &[],
        strategy: &runtime_class::RuntimeClassStrategy,
    },
    Resource {
        name: resources::PRIORITY_CLASSES,
        kind: "PriorityClass",
        list_kind: "PriorityClassList",
        singular: "priorityclass",
        short_names: &["pc"],
        categories: &[],
        namespaced: false,
        subresources: &[],
        strategy: &priority_class::PriorityClassStrategy,
    },
    Resource {
        name: resources::STORAGE_CLASSES,
        kind: "StorageClass",
        list_kind: "StorageClassList",
        singular: "storageclass",
        short_names: &["sc"],
        categories: &[],
        namespaced: false,
        subresources: &[],
        strategy: &storage_class::StorageClassStrategy,
    },
];

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;
