//! Nodes.

use serde_json::Value;

use super::metadata::{Scope, metadata, object_update};
use super::quantities::amount_value;
use super::tolerations::taints;
use super::{Errors, child, items, map, names, text};
use crate::registry::FieldError;

/// Checks a Node.
pub fn node(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::subdomain, &mut errors);
    let null = Value::Null;
    taints(object.get("spec").unwrap_or(&null), "spec", &mut errors);
    let status = object.get("status").unwrap_or(&null);
    for key in ["capacity", "allocatable"] {
        for (name, amount) in map(status, key) {
            let field = child(&child("status", key), name);
            amount_value(amount, &field, name, &mut errors);
        }
    }
    errors
}

/// Checks the change of a Node.
pub fn node_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    let null = Value::Null;
    let (new, old) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    set_once(new, old, "providerID", &mut errors);
    set_once(new, old, "podCIDR", &mut errors);
    let ranges = |spec| -> Vec<&Value> {
        items(spec, "", "podCIDRs")
            .map(|(_, range)| range)
            .collect()
    };
    if !ranges(old).is_empty() && ranges(new) != ranges(old) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    errors
}

/// A field that may be set, but not changed.
fn set_once(new: &Value, old: &Value, key: &str, errors: &mut Errors) {
    if !text(old, key).is_empty() && text(new, key) != text(old, key) {
        let detail = format!("node updates may not change {key} except from \"\" to valid");
        errors.push(FieldError::forbidden(child("spec", key), detail));
    }
}
