//! What the usual admission plugins of Kubernetes do to new objects, after defaults and before
//! validation.
//!
//! Everything is looked up in the store's snapshot: an admission writes nothing and asks nobody.

mod class_default;
mod lookup;
mod priority;
mod runtime_class;
mod service_account;

use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, ResourceName, resources};

use crate::api::ApiServer;
use crate::error;
use crate::route::Target;

/// The annotation of a pod that only mirrors one of a node's own (`MirrorPodAnnotationKey`).
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where an admission looks things up, and for what.
#[derive(Clone, Copy)]
struct Admission<'a> {
    api: &'a ApiServer,
    target: &'a Target,
}

impl Admission<'_> {
    /// 403 in the words of an admission plugin.
    fn refuse(self, why: &str) -> ApiError {
        error::forbidden(self.target.resource, &self.target.name, why)
    }
}

/// Completes a new object, or refuses it.
pub(crate) async fn admit(
    api: &ApiServer,
    target: &Target,
    object: &mut Value,
) -> Result<(), ApiError> {
    let admission = Admission { api, target };
    match target.resource.name {
        resources::PODS => {
            service_account::admit(admission, object).await?;
            priority::admit_pod(admission, object)?;
            runtime_class::admit(admission, object)
        }
        resources::NODES => {
            taint_new_node(object);
            Ok(())
        }
        resources::PRIORITY_CLASSES => priority::admit_class(admission, object),
        resources::PERSISTENT_VOLUME_CLAIMS => {
            protect(object, "kubernetes.io/pvc-protection");
            class_default::admit(admission, object);
            Ok(())
        }
        resources::PERSISTENT_VOLUMES => {
            protect(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a pod only mirrors one that a node has by itself.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// A node takes no pods before its conditions have been looked at (`TaintNodesByCondition`).
fn taint_new_node(node: &mut Value) {
    let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    let spec = &mut node["spec"];
    if !spec["taints"].is_array() {
        spec["taints"] = json!([]);
    }
    if let Some(taints) = spec["taints"].as_array_mut()
        && !taints
            .iter()
            .any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
}

/// Keeps an object until nobody uses it any more (`StorageObjectInUseProtection`).
fn protect(object: &mut Value, finalizer: &str) {
    let metadata = &mut object["metadata"];
    if !metadata["finalizers"].is_array() {
        metadata["finalizers"] = json!([]);
    }
    if let Some(finalizers) = metadata["finalizers"].as_array_mut()
        && !finalizers.iter().any(|one| one == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

/// Names a resource in an admission's look-ups.
type Wanted<'a> = (&'a ResourceName, &'a str, &'a str);

#[cfg(test)]
mod tests;
