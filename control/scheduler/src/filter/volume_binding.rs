//! A pod goes where the volumes behind its claims can be reached (Kubernetes:
//! `pkg/scheduler/framework/plugins/volumebinding`).
//!
//! Claims are bound by a controller of its own: a pod waits for the binding, unless the class of
//! the claim says that the binding waits for the pod. Then the pod goes where a volume is free for
//! each of its claims; once a node is chosen the volumes are reserved, and the controller completes
//! the binding.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use swiftlet_client::{Client, Object, ObjectKey};
use swiftlet_proto::claim::{Place, reaches};

use crate::bind::BindError;
use crate::framework::{Cycle, Filter, PreBind, PreFilter, Rejection, Reserve};
use crate::node_info::{NodeInfo, Snapshot};
use crate::volumes::VolumeStores;
use crate::volumes::reservations::{Choice, Foreseen, Reservations, Waiting, choose, reserve};

#[cfg(test)]
mod tests;

/// As rejections name it.
pub(crate) const PLUGIN: &str = "VolumeBinding";
/// Says that the binding of a claim is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The provisioner of classes whose volumes somebody makes by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Kubernetes' words for a node without a volume for some claim (`ErrReasonBindConflict`).
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";

#[derive(Clone)]
pub(crate) struct VolumeBinding {
    pub(crate) stores: VolumeStores,
    pub(crate) reservations: Reservations,
}

/// The pod's claims.
#[derive(Default)]
struct Claims {
    /// The volumes behind bound ones; `None` for one that does not exist.
    bound: Vec<Option<Arc<PersistentVolume>>>,
    /// Those whose binding waits for the pod, and what they can have.
    waiting: Vec<Foreseen>,
}

impl PreFilter for VolumeBinding {
    fn pre_filter(
        &self,
        cycle: &mut Cycle,
        pod: &Pod,
        _snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let claims = self.claims(pod)?;
        cycle.set(claims);
        Ok(())
    }
}

impl VolumeBinding {
    fn claims(&self, pod: &Pod) -> Result<Claims, Rejection> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        let (mut bound, mut waiting) = (Vec::new(), Vec::<Waiting>::new());
        for volume in volumes.into_iter().flatten() {
            let Some(claim) = self.claim(pod, volume)? else {
                continue;
            };
            if let Some(name) = bound_to(&claim) {
                let volume = self.stores.volumes.get(&ObjectKey::new("", name));
                bound.push(volume);
            } else if !self.waits_for_consumer(&claim) {
                let reason = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Rejection::new(PLUGIN, reason));
            } else if !waiting.iter().any(|one| one.claim.uid() == claim.uid()) {
                let is_made = self.is_made(&claim);
                waiting.push(Waiting { claim, is_made });
            }
        }
        let waiting = if waiting.is_empty() {
            Vec::new()
        } else {
            let volumes = self.stores.volumes.snapshot();
            self.reservations.foresee(waiting, &volumes)
        };
        Ok(Claims { bound, waiting })
    }

    /// Whether somebody makes a volume for the claim when one is needed.
    fn is_made(&self, claim: &PersistentVolumeClaim) -> bool {
        let spec = claim.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let class = class.and_then(|class| self.stores.classes.get(&ObjectKey::new("", class)));
        class.is_some_and(|class| class.provisioner != NO_PROVISIONER)
    }

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
        let Some(claims) = cycle.get::<Claims>() else {
            return Ok(());
        };
        let place = Place {
            name: node.name(),
            labels: node.labels(),
        };
        for volume in &claims.bound {
            let reason = match volume {
                None => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                Some(volume) if !reaches(volume, place) => {
                    "node(s) didn't match PersistentVolume's node affinity"
                }
                Some(_) => continue,
            };
            return Err(Rejection::new(PLUGIN, reason));
        }
        volumes_for(&claims.waiting, place).map(drop)
    }
}

fn volumes_for(waiting: &[Foreseen], place: Place<'_>) -> Result<Vec<Choice>, Rejection> {
    choose(waiting, place).ok_or_else(|| Rejection::new(PLUGIN, NO_VOLUME))
}

impl Reserve for VolumeBinding {
    /// So that the next pod finds these volumes taken. What the filter found is looked for anew:
    /// it may be gone by now.
    fn reserve(&self, pod: &Pod, node: &str) -> Result<(), Rejection> {
        let claims = self.claims(pod)?;
        if claims.waiting.is_empty() {
            return Ok(());
        }
        let node = self.stores.nodes.get(&ObjectKey::new("", node));
        let Some(node) = node else {
            return Err(Rejection::new(PLUGIN, NO_VOLUME));
        };
        let place = Place {
            name: node.name(),
            labels: node.metadata.labels.as_ref(),
        };
        let chosen = volumes_for(&claims.waiting, place)?;
        self.reservations.keep(pod.uid(), chosen);
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, _node: &str) {
        self.reservations.drop_of(pod.uid());
    }
}

impl PreBind for VolumeBinding {
    /// Writes into each chosen volume for whom it is. The controller completes the claim's side,
    /// which the pod's node waits for: the volume is nobody else's any more.
    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a Pod,
        _node: &'a str,
    ) -> BoxFuture<'a, Result<(), BindError>> {
        Box::pin(async move {
            for choice in self.reservations.of(pod.uid()) {
                let written = reserve(client, &choice).await;
                let volume = written.map_err(|error| BindError::PreBind {
                    plugin: PLUGIN,
                    message: format!("binding volumes: {error}"),
                })?;
                self.reservations.wrote(&volume);
            }
            Ok(())
        })
    }
}
