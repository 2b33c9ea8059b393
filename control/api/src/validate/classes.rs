//! Classes: of priorities, of runtimes and of storage.

use serde_json::Value;

use super::metadata::{Scope, labels, metadata, object_update};
use super::quantities::amount_value;
use super::{
    Errors, child, immutable, items, map, names, number, one_of, present, push_messages, text,
    tolerations,
};
use crate::registry::FieldError;

/// The greatest priority of a user's class (`HighestUserDefinablePriority`).
const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// Classes that every cluster has, with their values.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another \
         node if necessary.",
    ),
];

/// Checks a PriorityClass.
pub fn priority_class(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::subdomain, &mut errors);
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    let value = number(object, "value").unwrap_or_default();
    if name.starts_with("system-") {
        if let Err(why) = system_class(name, value, object) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if value > USER_PRIORITY_MAX {
        let detail =
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policies = &["Never", "PreemptLowerPriority"];
    one_of(object, "", "preemptionPolicy", policies, &mut errors);
    errors
}

fn system_class(name: &str, value: i64, object: &Value) -> Result<(), String> {
    let Some((_, wanted, _)) = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    if value != *wanted {
        return Err(format!("value of {name} PriorityClass must be {wanted}"));
    }
    if object.get("globalDefault").and_then(Value::as_bool) == Some(true) {
        return Err(format!(
            "globalDefault of {name} PriorityClass must be false"
        ));
    }
    Ok(())
}

/// Checks the change of a PriorityClass.
pub fn priority_class_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    if number(new, "value") != number(old, "value") {
        let detail = "may not be changed in an update.";
        errors.push(FieldError::forbidden("value", detail));
    }
    let (pointer, field) = ("/preemptionPolicy", "preemptionPolicy");
    immutable(new, old, pointer, field, &mut errors);
    errors
}

/// Checks a RuntimeClass.
pub fn runtime_class(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::subdomain, &mut errors);
    let handler = text(object, "handler");
    push_messages(&mut errors, "handler", handler, names::label(handler));
    if let Some(overhead) = present(object, "overhead") {
        for (name, amount) in map(overhead, "podFixed") {
            let field = format!("overhead.podFixed.{name}");
            amount_value(amount, &field, name, &mut errors);
        }
    }
    if let Some(scheduling) = present(object, "scheduling") {
        labels(scheduling, "scheduling", "nodeSelector", &mut errors);
        tolerations::tolerations(scheduling, "scheduling", &mut errors);
    }
    errors
}

/// Checks the change of a RuntimeClass.
pub fn runtime_class_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    immutable(new, old, "/handler", "handler", &mut errors);
    errors
}

/// Checks a StorageClass.
pub fn storage_class(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::subdomain, &mut errors);
    let provisioner = text(object, "provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        let messages = names::qualified_name(&provisioner.to_lowercase());
        push_messages(&mut errors, "provisioner", provisioner, messages);
    }
    for (key, _) in map(object, "parameters") {
        if key.is_empty() {
            let detail = "field can not be empty.";
            errors.push(FieldError::invalid("parameters", "".into(), detail));
        }
    }
    reclaim_policy(
        object,
        "",
        "reclaimPolicy",
        &["Delete", "Retain"],
        &mut errors,
    );
    let modes = &["Immediate", "WaitForFirstConsumer"];
    one_of(object, "", "volumeBindingMode", modes, &mut errors);
    for (path, term) in items(object, "", "allowedTopologies") {
        for (path, rule) in items(term, &path, "matchLabelExpressions") {
            if items(rule, "", "values").next().is_none() {
                errors.push(FieldError::required(child(&path, "values"), ""));
            }
        }
    }
    errors
}

/// What happens to a volume that is no longer claimed.
pub(super) fn reclaim_policy(
    object: &Value,
    path: &str,
    key: &str,
    known: &[&str],
    errors: &mut Errors,
) {
    if !text(object, key).is_empty() {
        one_of(object, path, key, known, errors);
    }
}

/// Checks the change of a StorageClass.
pub fn storage_class_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    for key in ["parameters", "provisioner", "reclaimPolicy"] {
        if new.get(key) != old.get(key) {
            let detail = format!("updates to {key} are forbidden.");
            errors.push(FieldError::forbidden(key, detail));
        }
    }
    let (pointer, field) = ("/volumeBindingMode", "volumeBindingMode");
    immutable(new, old, pointer, field, &mut errors);
    errors
}
