//! `metadata` of all kinds.

use serde_json::Value;

use super::names;
use super::{Errors, child, immutable, items, map, present, push_messages, text};
use crate::registry::{FieldError, FieldErrorKind};

/// Most bytes in the annotations of one object (`TotalAnnotationSizeLimitB`).
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
/// Finalizers that may do without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Where objects of a kind live.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Namespaced,
    Cluster,
}

/// Checks `metadata`; `rule` says what names may look like.
pub(super) fn metadata(object: &Value, scope: Scope, rule: names::Rule, errors: &mut Errors) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let prefix = text(metadata, "generateName");
    if !prefix.is_empty() {
        // A generated name goes on after the prefix, so it may end where a name may not.
        let probe = format!("{prefix}x");
        push_messages(errors, "metadata.generateName", prefix, rule(&probe));
    }
    match text(metadata, "name") {
        "" if prefix.is_empty() => {
            let detail = "name or generateName is required";
            errors.push(FieldError::required("metadata.name", detail));
        }
        "" => (),
        name => push_messages(errors, "metadata.name", name, rule(name)),
    }
    match (scope, text(metadata, "namespace")) {
        (Scope::Namespaced, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (Scope::Namespaced, name) => {
            push_messages(errors, "metadata.namespace", name, names::label(name));
        }
        (Scope::Cluster, "") => (),
        (Scope::Cluster, _) => {
            errors.push(FieldError::forbidden(
                "metadata.namespace",
                "not allowed on this type",
            ));
        }
    }
    labels(metadata, "metadata", "labels", errors);
    annotations(metadata, "metadata", errors);
    owner_references(metadata, errors);
    finalizers(metadata, errors);
}

/// Checks a map of labels.
pub(super) fn labels(object: &Value, path: &str, key: &str, errors: &mut Errors) {
    let field = child(path, key);
    for (key, value) in map(object, key) {
        push_messages(errors, &field, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        push_messages(errors, &field, value, names::label_value(value));
    }
}

/// Checks annotations.
pub(super) fn annotations(object: &Value, path: &str, errors: &mut Errors) {
    let field = child(path, "annotations");
    let mut bytes = 0;
    for (key, value) in map(object, "annotations") {
        push_messages(
            errors,
            &field,
            key,
            names::qualified_name(&key.to_lowercase()),
        );
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let detail = format!("may not be more than {ANNOTATION_BYTES_MAX} bytes");
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            field,
            Value::Null,
            detail,
        ));
    }
}

fn owner_references(metadata: &Value, errors: &mut Errors) {
    let mut controller: Option<&str> = None;
    for (path, owner) in items(metadata, "metadata", "ownerReferences") {
        let path = path.as_str();
        for (key, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            let value = text(owner, key);
            if value.is_empty() {
                errors.push(FieldError::invalid(child(path, key), value.into(), detail));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let name = text(owner, "name");
        if let Some(first) = controller {
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in \
                 references for {first} and {name}"
            );
            let all = metadata.get("ownerReferences").cloned().unwrap_or_default();
            errors.push(FieldError::invalid("metadata.ownerReferences", all, detail));
        }
        controller = Some(name);
    }
}

fn finalizers(metadata: &Value, errors: &mut Errors) {
    for (_, finalizer) in items(metadata, "metadata", "finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let field = "metadata.finalizers";
        push_messages(errors, field, name, names::qualified_name(name));
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(field, name.into(), detail));
        }
    }
}

/// Checks what may never change in any object.
pub fn object_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["name", "namespace", "uid", "creationTimestamp"] {
        let pointer = format!("/metadata/{key}");
        // A client may leave out what the server has set; the caller puts it back.
        if new.pointer(&pointer).is_some_and(|value| !value.is_null()) {
            immutable(new, old, &pointer, &format!("metadata.{key}"), &mut errors);
        }
    }
    no_new_finalizers(new, old, &mut errors);
    errors
}

/// An object that is being deleted gets no new finalizers.
fn no_new_finalizers(new: &Value, old: &Value, errors: &mut Errors) {
    let metadata = |object: &Value| object.get("metadata").cloned().unwrap_or_default();
    let (new, old) = (metadata(new), metadata(old));
    if present(&old, "deletionTimestamp").is_none() {
        return;
    }
    let known: Vec<&Value> = items(&old, "", "finalizers")
        .map(|(_, name)| name)
        .collect();
    let added: Vec<&str> = items(&new, "", "finalizers")
        .filter(|(_, name)| !known.contains(name))
        .filter_map(|(_, name)| name.as_str())
        .collect();
    if !added.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new \
             finalizers {added:?}"
        );
        errors.push(FieldError::forbidden("metadata.finalizers", detail));
    }
}
