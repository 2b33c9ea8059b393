//! `metadata.generation`, and what a status update may touch.

use serde_json::{Map, Value};

use super::fields::{keep, part};

/// A new object: generation 1.
pub(super) fn first(object: &mut Value) {
    set(object, 1);
}

/// An update: the old generation, one more if `changed`.
pub(super) fn next(new: &mut Value, old: &Value, changed: bool) {
    let generation = old
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    match (generation, changed) {
        (0, false) => {
            if let Some(metadata) = part(new, "metadata") {
                metadata.remove("generation");
            }
        }
        (generation, false) => set(new, generation),
        (generation, true) => set(new, generation.saturating_add(1)),
    }
}

fn set(object: &mut Value, generation: i64) {
    if let Some(metadata) = part(object, "metadata") {
        metadata.insert("generation".into(), generation.into());
    }
}

/// Whether a top-level field is not the same in both; null and missing are the same.
pub(super) fn differs(new: &Value, old: &Value, key: &str) -> bool {
    let null = Value::Null;
    new.get(key).unwrap_or(&null) != old.get(key).unwrap_or(&null)
}

/// Empties the status of a new object.
pub(super) fn clear_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert("status".into(), Value::Object(Map::new()));
    }
}

/// Keeps the generation and all top-level fields but the status; metadata the caller keeps.
pub(super) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let metadata = new.get("metadata").cloned();
    if new.is_object() {
        *new = old.clone();
    }
    let Some(members) = new.as_object_mut() else {
        return;
    };
    members.remove("status");
    if let Some(status) = status {
        members.insert("status".into(), status);
    }
    if let Some(metadata) = metadata {
        members.insert("metadata".into(), metadata);
    }
    next(new, old, false);
}

/// Keeps the status.
pub(super) fn keep_status(new: &mut Value, old: &Value) {
    keep(new, old, "status");
}
