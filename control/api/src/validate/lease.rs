//! Leases and Events.

use serde_json::Value;

use super::metadata::{Scope, metadata};
use super::{Errors, child, names, number, text};
use crate::registry::FieldError;

/// Checks a Lease.
pub fn lease(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    positive(spec, "leaseDurationSeconds", &mut errors);
    if let Some(transitions) = number(spec, "leaseTransitions")
        && transitions < 0
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "spec.leaseTransitions",
            transitions.into(),
            detail,
        ));
    }
    errors
}

fn positive(spec: &Value, key: &str, errors: &mut Errors) {
    if let Some(seconds) = number(spec, key)
        && seconds <= 0
    {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(
            child("spec", key),
            seconds.into(),
            detail,
        ));
    }
}

/// Checks an Event.
pub fn event(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let involved = object
        .pointer("/involvedObject/namespace")
        .and_then(Value::as_str);
    let namespace = object
        .get("metadata")
        .map(|metadata| text(metadata, "namespace"));
    let (involved, namespace) = (involved.unwrap_or_default(), namespace.unwrap_or_default());
    // Events about objects without a namespace live in `default` (or in a system namespace).
    let system = namespace.is_empty() || namespace == "default" || namespace == "kube-system";
    let matches = if involved.is_empty() {
        system
    } else {
        involved == namespace
    };
    if !matches {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            involved.into(),
            detail,
        ));
    }
    errors
}
