//! One pass over one object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use swiftlet_client::ClientError;
use swiftlet_client::api::{DeleteParameters, ObjectName, PatchKind};

use super::Controller;
use super::graph::{self, Item};
use crate::error::ControllerError;
use crate::owner::owners_of;
use crate::reconcile::Again;

/// The owner waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// The owner leaves its dependents behind.
const ORPHAN: &str = "orphan";

/// What an owner reference leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    Exists,
    /// It is being deleted and waits for its dependents.
    WaitsForDependents,
    Gone,
}

/// What to do with an object, judged by its owners: pure.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Keep,
    /// Some owners are left: only the references to the others go.
    Drop(Vec<OwnerReference>),
    Delete(&'static str),
}

impl Controller {
    pub(super) async fn sync(&self, item: &Item) -> Result<Again, ControllerError> {
        let Some(meta) = graph::metadata(&self.stores, item) else {
            return Ok(None);
        };
        if meta.deletion_timestamp.is_some() {
            return self.finalize(item, &meta).await;
        }
        let mut owners = Vec::new();
        for owner in owners_of(&meta) {
            owners.push((
                owner.clone(),
                self.state_of(&item.key.namespace, owner).await?,
            ));
        }
        let has_dependents = !graph::dependents(&self.stores, &item.uid).is_empty();
        match judge(&owners, &meta, has_dependents) {
            Verdict::Keep => (),
            Verdict::Drop(references) => self.set_owners(item, &meta, &references).await?,
            Verdict::Delete(policy) => self.delete(item, &meta, policy).await?,
        }
        Ok(None)
    }

    /// Asks the informers, and before anything is called gone, the API.
    async fn state_of(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<OwnerState, ControllerError> {
        let Some((resource, namespaced)) = graph::owner_resource(owner) else {
            // An owner of a kind that is not served cannot be judged.
            return Ok(OwnerState::Exists);
        };
        let kind = graph::Kind::of(owner);
        let known = kind.map(|kind| Item::owner(kind, namespace, owner));
        if let Some(meta) = known.and_then(|item| graph::metadata(&self.stores, &item)) {
            return Ok(state_of(&meta));
        }
        let namespace = if namespaced { namespace } else { "" };
        let name = ObjectName::new(resource, namespace, &owner.name);
        match self.client.api().get(&name).await {
            Ok(bytes) => {
                let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let meta: ObjectMeta =
                    serde_json::from_value(object["metadata"].clone()).unwrap_or_default();
                let same = meta.uid.as_deref() == Some(&owner.uid);
                Ok(if same {
                    state_of(&meta)
                } else {
                    OwnerState::Gone
                })
            }
            Err(error) if error.is_not_found() => Ok(OwnerState::Gone),
            Err(error) => Err(ClientError::from(error).into()),
        }
    }

    /// A terminating owner: its dependents first, if it says so.
    async fn finalize(&self, item: &Item, meta: &ObjectMeta) -> Result<Again, ControllerError> {
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|it| it == finalizer);
        if has(ORPHAN) {
            for dependent in graph::dependents(&self.stores, &item.uid) {
                self.orphan(&dependent, &item.uid).await?;
            }
            self.remove_finalizer(item, meta, ORPHAN).await?;
        } else if has(FOREGROUND) {
            let mut blocked = false;
            for dependent in graph::dependents(&self.stores, &item.uid) {
                blocked |= self.blocks(&dependent, &item.uid);
                self.queue.add(dependent);
            }
            if !blocked {
                self.remove_finalizer(item, meta, FOREGROUND).await?;
            }
        }
        Ok(None)
    }

    fn blocks(&self, dependent: &Item, owner: &str) -> bool {
        let Some(meta) = graph::metadata(&self.stores, dependent) else {
            return false;
        };
        let mut owners = owners_of(&meta).iter();
        owners.any(|it| it.uid == owner && it.block_owner_deletion == Some(true))
    }

    async fn orphan(&self, dependent: &Item, owner: &str) -> Result<(), ControllerError> {
        let Some(meta) = graph::metadata(&self.stores, dependent) else {
            return Ok(());
        };
        let others: Vec<_> = owners_of(&meta)
            .iter()
            .filter(|it| it.uid != owner)
            .cloned()
            .collect();
        self.set_owners(dependent, &meta, &others).await
    }

    async fn set_owners(
        &self,
        item: &Item,
        meta: &ObjectMeta,
        references: &[OwnerReference],
    ) -> Result<(), ControllerError> {
        self.patch(item, meta, "ownerReferences", json!(references))
            .await
    }

    async fn remove_finalizer(
        &self,
        item: &Item,
        meta: &ObjectMeta,
        finalizer: &str,
    ) -> Result<(), ControllerError> {
        let left: Vec<_> = meta
            .finalizers
            .iter()
            .flatten()
            .filter(|it| *it != finalizer)
            .collect();
        self.patch(item, meta, "finalizers", json!(left)).await
    }

    /// Patches exactly this state of the object; one that is gone needs nothing.
    async fn patch(
        &self,
        item: &Item,
        meta: &ObjectMeta,
        field: &str,
        value: Value,
    ) -> Result<(), ControllerError> {
        let mut metadata = json!({"uid": item.uid, "resourceVersion": meta.resource_version});
        metadata[field] = value;
        let body = json!({"metadata": metadata}).to_string().into();
        let name = ObjectName::new(item.kind.resource(), &item.key.namespace, &item.key.name);
        match self.client.api().patch(&name, PatchKind::Merge, body).await {
            Err(error) if !error.is_not_found() => Err(ClientError::from(error).into()),
            _ => Ok(()),
        }
    }

    /// Deletes exactly the state that was judged: somebody may have given it an owner meanwhile. A
    /// conflict is tried again with what the informer shows then.
    async fn delete(
        &self,
        item: &Item,
        meta: &ObjectMeta,
        policy: &str,
    ) -> Result<(), ControllerError> {
        let name = ObjectName::new(item.kind.resource(), &item.key.namespace, &item.key.name);
        let parameters = DeleteParameters {
            uid: Some(item.uid.clone()),
            resource_version: meta.resource_version.clone(),
            propagation_policy: Some(policy.to_owned()),
            ..DeleteParameters::default()
        };
        match self.client.api().delete(&name, parameters).await {
            Err(error) if !error.is_not_found() => Err(ClientError::from(error).into()),
            _ => Ok(()),
        }
    }
}

fn state_of(owner: &ObjectMeta) -> OwnerState {
    let waits = owner
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FOREGROUND);
    if owner.deletion_timestamp.is_some() && waits {
        OwnerState::WaitsForDependents
    } else {
        OwnerState::Exists
    }
}

fn judge(
    owners: &[(OwnerReference, OwnerState)],
    meta: &ObjectMeta,
    has_dependents: bool,
) -> Verdict {
    let any = |state: OwnerState| owners.iter().any(|(_, it)| *it == state);
    let solid = owners
        .iter()
        .filter(|(_, state)| *state == OwnerState::Exists);
    let solid: Vec<_> = solid.map(|(owner, _)| owner.clone()).collect();
    if owners.is_empty() || solid.len() == owners.len() {
        return Verdict::Keep;
    }
    if !solid.is_empty() {
        return Verdict::Drop(solid);
    }
    if any(OwnerState::WaitsForDependents) && has_dependents {
        // The owner waits for the whole tree.
        return Verdict::Delete("Foreground");
    }
    let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|it| it == finalizer);
    if has(ORPHAN) {
        Verdict::Delete("Orphan")
    } else if has(FOREGROUND) {
        Verdict::Delete("Foreground")
    } else {
        Verdict::Delete("Background")
    }
}
