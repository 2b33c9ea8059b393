//! One volume: it is free, claimed, released, or ends.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use swiftlet_client::api::PatchKind;
use swiftlet_client::recorder::EventType;
use swiftlet_client::{Object, ObjectKey};
use swiftlet_proto::claim::{BOUND_BY_CONTROLLER, is_held_for, reserve_for};

use super::Controller;
use super::claim::volume_name;
use crate::error::ControllerError;

/// Keeps a volume as long as it is bound.
const PROTECTION: &str = "kubernetes.io/pv-protection";

fn phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

impl Controller {
    pub(super) async fn sync_volume(
        &self,
        volume: &PersistentVolume,
    ) -> Result<(), ControllerError> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let Some(reference) = reference else {
            self.set_volume_phase(volume, "Available", None).await?;
            return self.let_go(volume, false).await;
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = ObjectKey::new(&text(&reference.namespace), &text(&reference.name));
        let uid = text(&reference.uid);
        if uid.is_empty() {
            // Reserved by hand, for a claim that may come later.
            self.set_volume_phase(volume, "Available", None).await?;
            self.queue.add(key);
            return self.let_go(volume, false).await;
        }
        let claim = self.claims.get(&key).filter(|claim| claim.uid() == uid);
        match claim {
            None => self.released(volume, &key).await,
            Some(claim) if volume_name(&claim) == volume.metadata.name.as_deref() => {
                self.set_volume_phase(volume, "Bound", None).await?;
                self.let_go(volume, true).await
            }
            Some(claim) if volume_name(&claim).is_none() => {
                self.queue.add(key);
                Ok(())
            }
            // The claim has another volume.
            Some(_) => self.unreserve(volume).await,
        }
    }

    /// The claim is gone: its data stay, for whoever looks after the volume.
    async fn released(
        &self,
        volume: &PersistentVolume,
        key: &ObjectKey,
    ) -> Result<(), ControllerError> {
        // The informer may be behind; a volume is not released on old knowledge.
        match self
            .client
            .get::<PersistentVolumeClaim>(&key.namespace, &key.name)
            .await
        {
            Ok(claim) => {
                let reference = volume
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.claim_ref.as_ref());
                if reference.and_then(|it| it.uid.as_deref()) == Some(claim.uid()) {
                    self.queue.add(key.clone());
                    return Ok(());
                }
            }
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error.into()),
        }
        let spec = volume.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if phase(volume) != "Failed" {
            self.set_volume_phase(volume, "Released", None).await?;
        }
        if policy == Some("Delete") && !volume.is_terminating() && phase(volume) != "Failed" {
            let text = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin \
                 matched",
                volume.name()
            );
            let kind = EventType::Warning;
            self.recorder
                .record(volume, kind, "VolumeFailedDelete", &text);
            self.set_volume_phase(volume, "Failed", Some(&text)).await?;
        }
        self.let_go(volume, false).await
    }

    async fn unreserve(&self, volume: &PersistentVolume) -> Result<(), ControllerError> {
        let annotations = volume.metadata.annotations.as_ref();
        if !annotations.is_some_and(|all| all.contains_key(BOUND_BY_CONTROLLER)) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": { BOUND_BY_CONTROLLER: null },
            },
            "spec": { "claimRef": null },
        });
        self.client
            .patch::<PersistentVolume>(&volume.key(), PatchKind::Merge, &patch)
            .await?;
        Ok(())
    }

    /// A volume that ends goes when it is not bound.
    async fn let_go(&self, volume: &PersistentVolume, bound: bool) -> Result<(), ControllerError> {
        let finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
        if bound || !volume.is_terminating() || !finalizers.iter().any(|one| one == PROTECTION) {
            return Ok(());
        }
        let rest: Vec<_> = finalizers
            .into_iter()
            .filter(|one| one != PROTECTION)
            .collect();
        // Not if the volume has been bound meanwhile: that is another revision of it.
        let patch = json!({ "metadata": {
            "resourceVersion": volume.metadata.resource_version,
            "finalizers": rest,
        } });
        self.client
            .patch::<PersistentVolume>(&volume.key(), PatchKind::Merge, &patch)
            .await?;
        Ok(())
    }

    /// Writes into the volume for whom it is, unless that stands there.
    pub(super) async fn reserve(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), ControllerError> {
        let mut volume = volume.clone();
        if !is_held_for(&volume, claim) {
            reserve_for(&mut volume, claim);
            volume = self.client.update(&volume).await?;
        }
        self.set_volume_phase(&volume, "Bound", None).await
    }

    async fn set_volume_phase(
        &self,
        volume: &PersistentVolume,
        wanted: &str,
        message: Option<&str>,
    ) -> Result<(), ControllerError> {
        if phase(volume) == wanted {
            return Ok(());
        }
        let patch = json!({ "status": { "phase": wanted, "message": message } });
        self.client
            .patch_status::<PersistentVolume>(&volume.key(), PatchKind::Merge, &patch)
            .await?;
        Ok(())
    }
}
