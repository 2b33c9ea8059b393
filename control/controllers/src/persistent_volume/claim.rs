//! One claim: it is bound, waits, or ends.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;
use std::sync::Arc;
use swiftlet_client::api::PatchKind;
use swiftlet_client::recorder::EventType;
use swiftlet_client::{Object, ObjectKey};
use swiftlet_proto::claim::BOUND_BY_CONTROLLER;

use super::Controller;
use super::select;
use crate::error::ControllerError;

/// Keeps a claim as long as a pod uses it.
pub(super) const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Says that the binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// `spec.volumeName`, if there is one.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// The claims that a pod uses.
pub(super) fn used_by(pod: &Pod) -> Vec<ObjectKey> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes
        .into_iter()
        .flatten()
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
        .map(|source| ObjectKey::new(pod.namespace(), &source.claim_name))
        .collect()
}

/// Whether a pod is on a node and uses the claim.
fn uses(pod: &Pod, claim: &ObjectKey) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.is_some_and(|name| !name.is_empty()) && used_by(pod).contains(claim)
}

fn is_bound_once(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(BIND_COMPLETED))
}

fn phase(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

impl Controller {
    pub(super) async fn sync_claim(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ControllerError> {
        if claim.is_terminating() {
            return self.release_claim(claim).await;
        }
        let Some(name) = volume_name(claim) else {
            return self.find_volume(claim).await;
        };
        let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) else {
            if phase(claim) == "Bound" {
                let text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.tell(claim, EventType::Warning, "ClaimLost", text);
                self.set_phase(claim, "Lost").await?;
            }
            return Ok(());
        };
        let has_holder = volume
            .spec
            .as_ref()
            .is_some_and(|spec| spec.claim_ref.is_some());
        if select::is_for(&volume, claim) {
            return self.bind(&volume, claim).await;
        }
        if !has_holder {
            // What has been bound before stays so; who names a volume himself must fit to it.
            let mismatch = select::mismatch(&volume, claim);
            let Some(why) = mismatch.filter(|_| !is_bound_once(claim)) else {
                return self.bind(&volume, claim).await;
            };
            let text = format!("Cannot bind to requested volume {name:?}: {why}");
            self.tell(claim, EventType::Warning, "VolumeMismatch", &text);
            return Ok(());
        }
        if phase(claim) == "Bound" {
            let text = "Bound claim has lost reference to PersistentVolume. Data on the volume is \
                        lost!";
            self.tell(claim, EventType::Warning, "ClaimMisbound", text);
            self.set_phase(claim, "Lost").await?;
        }
        Ok(())
    }

    /// A claim that ends goes when no pod on a node uses it any more.
    async fn release_claim(&self, claim: &PersistentVolumeClaim) -> Result<(), ControllerError> {
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|one| one == PROTECTION) || self.user(claim).is_some() {
            return Ok(());
        }
        // The informer may be behind; a claim is not let go on old knowledge.
        let (pods, _) = self.client.list::<Pod>(Some(claim.namespace())).await?;
        let key = claim.key();
        if pods.iter().any(|pod| uses(pod, &key)) {
            // The pod's end, which the informer shows later, queues the claim again.
            return Ok(());
        }
        let mut claim = claim.clone();
        let rest = finalizers.into_iter().filter(|one| one != PROTECTION);
        claim.metadata.finalizers = Some(rest.collect());
        self.client.update(&claim).await?;
        Ok(())
    }

    /// A pod on a node that uses the claim.
    fn user(&self, claim: &PersistentVolumeClaim) -> Option<Arc<Pod>> {
        let key = claim.key();
        let pods = self.stores.pods.snapshot();
        let mut pods = pods.in_namespace(claim.namespace());
        pods.find(|pod| uses(pod, &key)).cloned()
    }

    async fn find_volume(&self, claim: &PersistentVolumeClaim) -> Result<(), ControllerError> {
        // The scheduler has chosen, for the node that it gave the pod.
        let volumes = self.volumes.snapshot();
        if let Some(volume) = select::held(volumes.iter(), claim) {
            return self.bind(volume, claim).await;
        }
        if self.waits_for_consumer(claim) {
            return self.find_for_consumer(claim).await;
        }
        self.bind_first(select::select(volumes.iter(), claim, None), claim)
            .await
    }

    /// The claim waits for a pod, and gets a volume that the pod's node can use.
    async fn find_for_consumer(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ControllerError> {
        let Some(pod) = self.user(claim) else {
            let text = "waiting for first consumer to be created before binding";
            self.tell(claim, EventType::Normal, "WaitForFirstConsumer", text);
            return Ok(());
        };
        // The scheduler writes its choice before it binds the pod, and the informer of volumes may
        // be behind that of pods: a second volume is not chosen on old knowledge.
        let (volumes, _) = self.client.list::<PersistentVolume>(None).await?;
        let volumes: Vec<_> = volumes.into_iter().map(Arc::new).collect();
        if let Some(volume) = select::held(volumes.iter(), claim) {
            return self.bind(volume, claim).await;
        }
        let node = self.node_of(&pod);
        let place = node.as_deref().map(select::place);
        self.bind_first(select::select(volumes.iter(), claim, place), claim)
            .await
    }

    async fn bind_first(
        &self,
        volume: Option<&Arc<PersistentVolume>>,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ControllerError> {
        let Some(volume) = volume else {
            self.tell_why_unbound(claim);
            return Ok(());
        };
        self.bind(volume, claim).await
    }

    fn node_of(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.spec.as_ref()?.node_name.as_deref()?;
        self.stores.nodes.get(&ObjectKey::new("", name))
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = self.classes.get(&ObjectKey::new("", class_name(claim)));
        class.is_some_and(|class| {
            class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
        })
    }

    fn tell_why_unbound(&self, claim: &PersistentVolumeClaim) {
        let name = class_name(claim);
        if name.is_empty() {
            let text = "no persistent volumes available for this claim and no storage class is set";
            return self.tell(claim, EventType::Normal, "FailedBinding", text);
        }
        match self.classes.get(&ObjectKey::new("", name)) {
            None => {
                let text = format!("storageclass.storage.k8s.io {name:?} not found");
                self.tell(claim, EventType::Warning, "ProvisioningFailed", &text);
            }
            Some(class) if class.provisioner == "kubernetes.io/no-provisioner" => {
                let text = "no volume plugin matched name: kubernetes.io/no-provisioner";
                self.tell(claim, EventType::Warning, "ProvisioningFailed", text);
            }
            Some(class) => {
                let text = format!(
                    "Waiting for a volume to be created either by the external provisioner '{}' or \
                     manually by the system administrator. If volume creation is delayed, please \
                     verify that the provisioner is running and correctly registered.",
                    class.provisioner
                );
                self.tell(claim, EventType::Normal, "ExternalProvisioning", &text);
            }
        }
    }

    fn tell(
        &self,
        claim: &PersistentVolumeClaim,
        kind: EventType,
        reason: &'static str,
        text: &str,
    ) {
        self.recorder.record(claim, kind, reason, text);
    }

    /// Completes what is not yet written of a binding.
    pub(super) async fn bind(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ControllerError> {
        self.reserve(volume, claim).await?;
        let mut claim = claim.clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        let completed = annotations.contains_key(BIND_COMPLETED);
        if !completed || volume_name(&claim).is_none() {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
            if volume_name(&claim).is_none() {
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
                let spec = claim.spec.get_or_insert_default();
                spec.volume_name.clone_from(&volume.metadata.name);
            }
            claim = self.client.update(&claim).await?;
        }
        let spec = volume.spec.clone().unwrap_or_default();
        let status = json!({ "status": {
            "phase": "Bound",
            "accessModes": spec.access_modes,
            "capacity": spec.capacity,
        } });
        let known = claim.status.clone().unwrap_or_default();
        if phase(&claim) != "Bound"
            || known.access_modes != spec.access_modes
            || known.capacity != spec.capacity
        {
            let key = claim.key();
            self.client
                .patch_status::<PersistentVolumeClaim>(&key, PatchKind::Merge, &status)
                .await?;
        }
        Ok(())
    }

    async fn set_phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
    ) -> Result<(), ControllerError> {
        let patch = json!({ "status": { "phase": phase } });
        self.client
            .patch_status::<PersistentVolumeClaim>(&claim.key(), PatchKind::Merge, &patch)
            .await?;
        Ok(())
    }
}

fn class_name(claim: &PersistentVolumeClaim) -> &str {
    let spec = claim.spec.as_ref();
    spec.and_then(|spec| spec.storage_class_name.as_deref())
        .unwrap_or_default()
}
