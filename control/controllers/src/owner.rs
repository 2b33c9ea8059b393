//! Who owns what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use swiftlet_client::{Object, ObjectKey};

/// The reference to the controller, if there is one.
pub(crate) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    owners_of(meta)
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// All references to owners.
pub(crate) fn owners_of(meta: &ObjectMeta) -> &[OwnerReference] {
    meta.owner_references.as_deref().unwrap_or_default()
}

/// The key of the controller if it is of this type.
pub(crate) fn controller_key<T: Object>(meta: &ObjectMeta) -> Option<ObjectKey> {
    let owner = controller_of(meta)?;
    let matches = owner.kind == T::KIND && owner.api_version == T::API_VERSION;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    matches.then(|| ObjectKey::new(namespace, &owner.name))
}

/// A reference that makes `owner` the controller.
pub(crate) fn controller_reference<T: Object>(owner: &T) -> OwnerReference {
    OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: owner.name().to_owned(),
        uid: owner.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Index: the uids of all owners.
pub(crate) fn by_owner<T: Object>(object: &T) -> Vec<String> {
    owners_of(object.metadata())
        .iter()
        .map(|owner| owner.uid.clone())
        .collect()
}

/// Index: the namespace, of an object without a controller.
pub(crate) fn by_controllerless_namespace<T: Object>(object: &T) -> Vec<String> {
    match controller_of(object.metadata()) {
        Some(_) => Vec::new(),
        None => vec![object.namespace().to_owned()],
    }
}
