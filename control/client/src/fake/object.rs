//! What an API server does to an object's metadata.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::error;
use crate::api::{ApiError, DeleteParameters, ObjectName};

/// The text at a JSON pointer, or the empty text.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Sets (or, with null, removes) a field of the metadata.
pub(super) fn set(object: &mut Value, field: &str, value: Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        match value {
            Value::Null => metadata.remove(field),
            value => metadata.insert(field.to_owned(), value),
        };
    }
}

pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object
        .pointer("/metadata/labels")
        .cloned()
        .unwrap_or_default();
    serde_json::from_value(labels).unwrap_or_default()
}

/// A new object as it is stored first; `unique` makes names and uids.
pub(super) fn admitted(
    name: &ObjectName,
    mut object: Value,
    unique: u64,
) -> Result<Value, ApiError> {
    let prefix = text(&object, "/metadata/generateName");
    if text(&object, "/metadata/name").is_empty() {
        if prefix.is_empty() {
            return Err(error(422, "Invalid", "name or generateName is required"));
        }
        set(&mut object, "name", json!(format!("{prefix}{unique:05}")));
    }
    if !name.namespace.is_empty() {
        set(&mut object, "namespace", json!(name.namespace));
    }
    set(
        &mut object,
        "uid",
        json!(format!("00000000-0000-4000-8000-{unique:012x}")),
    );
    // Taken from tests that care about age, which run with a clock of their own.
    if text(&object, "/metadata/creationTimestamp").is_empty() {
        set(
            &mut object,
            "creationTimestamp",
            json!(Time(Timestamp::now())),
        );
    }
    if object.get("spec").is_some() {
        set(&mut object, "generation", json!(1));
    }
    match name.resource.plural {
        "pods" if object.get("status").is_none() => object["status"] = json!({"phase": "Pending"}),
        "namespaces" => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        _ => (),
    }
    Ok(object)
}

/// `body` in place of `old`, each part only through its own door.
pub(super) fn replaced(name: &ObjectName, old: &Value, body: Value) -> Value {
    let mut new = match name.subresource {
        "status" => with_part(old.clone(), "status", &body),
        "finalize" => with_part(old.clone(), "spec", &body),
        _ if old.get("status").is_some() => with_part(body, "status", old),
        _ => body,
    };
    let kept = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
    ];
    for field in kept {
        set(&mut new, field, old["metadata"][field].clone());
    }
    if new.get("spec") != old.get("spec") && name.subresource != "finalize" {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        set(&mut new, "generation", json!(generation + 1));
    }
    new
}

fn with_part(mut target: Value, part: &str, source: &Value) -> Value {
    if let Some(target) = target.as_object_mut() {
        match source.get(part) {
            Some(value) => target.insert(part.to_owned(), value.clone()),
            None => target.remove(part),
        };
    }
    target
}

/// Whether an object that is being deleted has nothing left to wait for.
pub(super) fn is_finished(object: &Value) -> bool {
    let is_pod = object["kind"] == "Pod";
    !object["metadata"]["deletionTimestamp"].is_null()
        && finalizers(object).is_empty()
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty)
        // A pod waits for its node, which deletes it with grace zero.
        && !(is_pod && object["metadata"]["deletionGracePeriodSeconds"].as_i64() > Some(0))
}

/// What a deletion makes of the object; `None`: it goes.
pub(super) fn deletion(
    name: &ObjectName,
    old: &Value,
    parameters: &DeleteParameters,
) -> Option<Value> {
    let mut new = old.clone();
    let mut finalizers = finalizers(old);
    let mut add = |finalizer: &str| {
        if !finalizers.iter().any(|known| known == finalizer) {
            finalizers.push(finalizer.to_owned());
        }
    };
    match parameters.propagation_policy.as_deref() {
        Some("Foreground") => add("foregroundDeletion"),
        Some("Orphan") => add("orphan"),
        _ => (),
    }
    if !finalizers.is_empty() {
        set(&mut new, "finalizers", json!(finalizers));
    }
    let grace = match name.resource.plural {
        "pods" if !text(old, "/spec/nodeName").is_empty() => {
            parameters.grace_period_seconds.unwrap_or(30)
        }
        _ => 0,
    };
    set(&mut new, "deletionGracePeriodSeconds", json!(grace));
    if new["metadata"]["deletionTimestamp"].is_null() {
        set(&mut new, "deletionTimestamp", json!(Time(Timestamp::now())));
    }
    if name.resource.plural == "namespaces" {
        new["status"]["phase"] = json!("Terminating");
    }
    (!is_finished(&new)).then_some(new)
}

fn finalizers(object: &Value) -> Vec<String> {
    let finalizers = object
        .pointer("/metadata/finalizers")
        .cloned()
        .unwrap_or_default();
    serde_json::from_value(finalizers).unwrap_or_default()
}
