//! The rules of Kubernetes for whole objects, in Kubernetes' words.
//!
//! Everything here is total: an object of any shape gives errors, never a panic.

mod classes;
mod container;
mod data;
mod downward;
mod ephemeral;
mod label_selector;
mod lease;
mod metadata;
mod names;
mod namespace;
mod node;
mod pod;
mod pod_fields;
mod pod_resize;
mod pod_update;
mod probe;
mod quantities;
mod restart;
mod security;
mod service;
mod storage;
mod tolerations;
mod volumes;
mod workload;

use serde_json::{Map, Value};

use crate::registry::{FieldError, FieldErrorKind};

pub(crate) use classes::SYSTEM_CLASSES;
pub use classes::{
    priority_class, priority_class_update, runtime_class, runtime_class_update, storage_class,
    storage_class_update,
};
pub use data::{config_map, config_map_update, secret, secret_update, service_account};
pub use ephemeral::ephemeral_containers_update;
pub use lease::{event, lease};
pub use metadata::object_update;
pub use namespace::namespace;
pub use node::{node, node_update};
pub use pod::{pod, pod_create};
pub use pod_resize::pod_resize;
pub use pod_update::pod_update;
pub use service::{service, service_update};
pub use storage::{
    persistent_volume, persistent_volume_claim, persistent_volume_claim_update,
    persistent_volume_update,
};
pub use workload::{deployment, replica_set, workload_update};

/// What has been found wrong so far.
type Errors = Vec<FieldError>;

/// The text of a member; empty if there is none.
fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The number of a member.
fn number(object: &Value, key: &str) -> Option<i64> {
    object.get(key).and_then(Value::as_i64)
}

/// The elements of a member with their paths.
fn items<'a>(
    object: &'a Value,
    path: &str,
    key: &str,
) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    let path = child(path, key);
    let items = object
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    items
        .iter()
        .enumerate()
        .map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// The members of a member that is a map.
fn map<'a>(
    object: &'a Value,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    object
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// The member, unless it is null.
fn present<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// `path.key`.
fn child(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// A value that is not among the `supported` ones.
fn not_supported(field: String, value: &str, supported: &[&str]) -> FieldError {
    let supported: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
    let detail = format!("supported values: {}", supported.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, field, value.into(), detail)
}

/// A value that occurs twice.
fn duplicate(field: String, value: impl Into<Value>) -> FieldError {
    FieldError::new(FieldErrorKind::Duplicate, field, value.into(), "")
}

/// A name of something that does not exist.
fn not_found(field: String, value: &str) -> FieldError {
    FieldError::new(FieldErrorKind::NotFound, field, value.into(), "")
}

/// One error for each message of a rule of [`names`].
fn push_messages(errors: &mut Errors, field: &str, value: &str, messages: Vec<String>) {
    errors.extend(
        messages
            .into_iter()
            .map(|text| FieldError::invalid(field, value.into(), text)),
    );
}

/// A text that is required and must be among `supported`.
fn one_of(object: &Value, path: &str, key: &str, supported: &[&str], errors: &mut Errors) {
    let value = text(object, key);
    let field = child(path, key);
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !supported.contains(&value) {
        errors.push(not_supported(field, value, supported));
    }
}

/// A number that may be missing but not negative.
fn not_negative(object: &Value, path: &str, key: &str, errors: &mut Errors) {
    if let Some(number) = number(object, key)
        && number < 0
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(child(path, key), number.into(), detail));
    }
}

/// A text that may not be empty.
fn required(object: &Value, path: &str, key: &str, errors: &mut Errors) {
    if text(object, key).is_empty() {
        errors.push(FieldError::required(child(path, key), ""));
    }
}

/// A field that may not change.
fn immutable(new: &Value, old: &Value, pointer: &str, field: &str, errors: &mut Errors) {
    let null = Value::Null;
    let new = new.pointer(pointer).unwrap_or(&null);
    if new != old.pointer(pointer).unwrap_or(&null) {
        errors.push(FieldError::invalid(
            field,
            new.clone(),
            "field is immutable",
        ));
    }
}

#[cfg(test)]
mod served_tests;
#[cfg(test)]
mod tests;
