//! A pod goes where the volumes behind its claims can be reached (Kubernetes:
//! `pkg/scheduler/framework/plugins/volumebinding`).
//!
//! Claims are bound by a controller of its own: a pod waits for the binding, unless the class of
//! the claim says that the binding waits for the pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use swiftlet_client::{Object, ObjectKey};
use swiftlet_proto::selector::selects_node;

use crate::framework::{Cycle, Filter, PreFilter, Rejection};
use crate::node_info::{NodeInfo, Snapshot};
use crate::volumes::VolumeStores;

/// As rejections name it.
pub(crate) const PLUGIN: &str = "VolumeBinding";
/// Says that the binding of a claim is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

pub(crate) struct VolumeBinding {
    pub(crate) stores: VolumeStores,
}

/// The volumes behind the pod's bound claims; `None` for one that does not exist.
struct Bound(Vec<Option<Arc<PersistentVolume>>>);

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        cycle: &mut Cycle,
        pod: &Pod,
        _snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        let mut bound = Vec::new();
        for volume in volumes.into_iter().flatten() {
            let Some(claim) = self.claim(pod, volume)? else {
                continue;
            };
            if let Some(name) = bound_to(&claim) {
                bound.push(self.stores.volumes.get(&ObjectKey::new("", name)));
            } else if !self.waits_for_consumer(&claim) {
                let reason = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Rejection::new(PLUGIN, reason));
            }
        }
        cycle.set(Bound(bound));
        Ok(())
    }
}

impl VolumeBinding {
    /// The claim behind a volume of the pod, if it has one.
    fn claim(
        &self,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Rejection> {
        let (name, missing) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => {
                let name = source.claim_name.clone();
                let missing = format!("persistentvolumeclaim {name:?} not found");
                (name, missing)
            }
            (None, Some(_)) => {
                let name = format!("{}-{}", pod.name(), volume.name);
                let missing = format!(
                    "waiting for ephemeral volume controller to create the \
                     persistentvolumeclaim {name:?}"
                );
                (name, missing)
            }
            (None, None) => return Ok(None),
        };
        let claim = self
            .stores
            .claims
            .get(&ObjectKey::new(pod.namespace(), &name));
        let claim = claim.ok_or_else(|| Rejection::new(PLUGIN, missing))?;
        if claim.is_terminating() {
            let reason = format!("persistentvolumeclaim {name:?} is being deleted");
            return Err(Rejection::new(PLUGIN, reason));
        }
        Ok(Some(claim))
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let spec = claim.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let class = class.and_then(|name| self.stores.classes.get(&ObjectKey::new("", name)));
        let is_free = spec
            .and_then(|spec| spec.volume_name.as_deref())
            .unwrap_or_default()
            == "";
        is_free
            && class.is_some_and(|class| {
                class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
            })
    }
}

/// The volume of a claim whose binding is complete.
fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty() && annotations.contains_key(BIND_COMPLETED)).then_some(name)
}

impl Filter for VolumeBinding {
    fn filter(&self, cycle: &Cycle, _pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(Bound(volumes)) = cycle.get::<Bound>() else {
            return Ok(());
        };
        for volume in volumes {
            let reason = match volume {
                None => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                Some(volume) if !reaches(volume, node) => {
                    "node(s) didn't match PersistentVolume's node affinity"
                }
                Some(_) => continue,
            };
            return Err(Rejection::new(PLUGIN, reason));
        }
        Ok(())
    }
}

/// Whether the node can use the volume.
fn reaches(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let spec = volume.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return true;
    };
    let none = std::collections::BTreeMap::new();
    let labels = node.labels().unwrap_or(&none);
    selects_node(required, labels, node.name())
}
