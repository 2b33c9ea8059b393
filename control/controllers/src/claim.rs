//! Adoption and release: which objects does a controller own?
//!
//! An object without a controller that the selector matches is adopted; an owned object that the
//! selector no longer matches is released.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use swiftlet_client::api::PatchKind;
use swiftlet_client::reflector::Snapshot;
use swiftlet_client::{Client, Object};
use swiftlet_proto::selector::LabelSelector;
use tracing::debug;

use crate::error::ControllerError;
use crate::informers::{ORPHAN, OWNER};
use crate::owner::{controller_of, controller_reference, owners_of};

/// What is to be done about each object.
pub(crate) struct Claims<T> {
    /// Owned and selected.
    pub(crate) owned: Vec<Arc<T>>,
    /// Selected, without a controller.
    pub(crate) adopt: Vec<Arc<T>>,
    /// Owned, no longer selected.
    pub(crate) release: Vec<Arc<T>>,
}

/// Decides. Objects that are being deleted are neither adopted nor released.
pub(crate) fn decide<O: Object, T: Object>(
    owner: &O,
    selector: &LabelSelector,
    objects: &Snapshot<T>,
) -> Claims<T> {
    let none = std::collections::BTreeMap::new();
    let selected =
        |object: &T| selector.matches(object.metadata().labels.as_ref().unwrap_or(&none));
    let mut claims = Claims {
        owned: Vec::new(),
        adopt: Vec::new(),
        release: Vec::new(),
    };
    for object in objects.by_index(OWNER, owner.uid()) {
        let controlled = controller_of(object.metadata()).is_some_and(|it| it.uid == owner.uid());
        if !controlled {
            continue;
        }
        if selected(object) {
            claims.owned.push(Arc::clone(object));
        } else if !object.is_terminating() && !owner.is_terminating() {
            claims.release.push(Arc::clone(object));
        }
    }
    if owner.is_terminating() {
        return claims;
    }
    for object in objects.by_index(ORPHAN, owner.namespace()) {
        if selected(object) && !object.is_terminating() {
            claims.adopt.push(Arc::clone(object));
        }
    }
    claims
}

/// Carries the claims out; answers what is owned then.
pub(crate) async fn carry_out<O: Object, T: Object>(
    client: &Client,
    owner: &O,
    claims: Claims<T>,
) -> Result<Vec<Arc<T>>, ControllerError> {
    let mut owned = claims.owned;
    for object in &claims.release {
        let others = owners_of(object.metadata())
            .iter()
            .filter(|it| it.uid != owner.uid());
        let references = others.cloned().collect();
        match set_owners(client, &**object, references).await {
            Err(error) if !error.is_ordinary() => return Err(error),
            _ => debug!(object = %object.key(), owner = %owner.key(), "released"),
        }
    }
    if claims.adopt.is_empty() || !may_adopt(client, owner).await? {
        return Ok(owned);
    }
    for object in &claims.adopt {
        let mut references = owners_of(object.metadata()).to_vec();
        references.push(controller_reference(owner));
        match set_owners(client, &**object, references).await {
            Ok(adopted) => owned.push(Arc::new(adopted)),
            // Gone meanwhile, or changed: the change will bring us back.
            Err(error) if error.is_ordinary() => (),
            Err(error) => return Err(error),
        }
    }
    Ok(owned)
}

/// A controller that is gone or going must adopt nothing, and the informer may not know yet.
async fn may_adopt<O: Object>(client: &Client, owner: &O) -> Result<bool, ControllerError> {
    match client.get::<O>(owner.namespace(), owner.name()).await {
        Ok(fresh) => Ok(fresh.uid() == owner.uid() && !fresh.is_terminating()),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the owner references of exactly this state of the object.
pub(crate) async fn set_owners<T: Object>(
    client: &Client,
    object: &T,
    references: Vec<OwnerReference>,
) -> Result<T, ControllerError> {
    let meta = object.metadata();
    let patch = json!({"metadata": {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": references,
    }});
    Ok(client
        .patch(&object.key(), PatchKind::Merge, &patch)
        .await?)
}
