//! What of a pod its own containers may be told (the downward API).

use serde_json::Value;

use super::{Errors, child, names, not_supported, present, push_messages, text};
use crate::registry::FieldError;
use crate::strategy::Amount;

/// Fields for variables, in the order of Kubernetes' messages.
const ENVIRONMENT: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields for files.
const VOLUME: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that exist, but are for neither.
const OTHERS: &[&str] = &["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: &[&str] = &["1m", "1"];
const BYTE_DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Where the value goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A variable of the environment.
    Environment,
    /// A file in a volume.
    Volume,
}

impl Purpose {
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Environment => ENVIRONMENT,
            Self::Volume => VOLUME,
        }
    }
}

/// Checks `fieldRef` at `path`.
pub(super) fn field_ref(reference: &Value, path: &str, purpose: Purpose, errors: &mut Errors) {
    let version = text(reference, "apiVersion");
    if version.is_empty() {
        errors.push(FieldError::required(child(path, "apiVersion"), ""));
        return;
    }
    let (value, field) = (text(reference, "fieldPath"), child(path, "fieldPath"));
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if let Some((map, key)) = subscript(value) {
        match map {
            "metadata.labels" => push_messages(errors, &field, key, names::qualified_name(key)),
            "metadata.annotations" => {
                let messages = names::qualified_name(&key.to_lowercase());
                push_messages(errors, &field, key, messages);
            }
            _ => {
                let detail = "does not support subscript";
                errors.push(FieldError::invalid(field, map.into(), detail));
            }
        }
        return;
    }
    let known = [ENVIRONMENT, VOLUME, OTHERS];
    if !known.iter().any(|list| list.contains(&value)) {
        let detail = format!("error converting fieldPath: field label not supported: {value}");
        errors.push(FieldError::invalid(field, value.into(), detail));
    } else if !purpose.fields().contains(&value) {
        errors.push(not_supported(field, value, purpose.fields()));
    }
}

/// `metadata.labels` and `app` of `metadata.labels['app']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// Checks `resourceFieldRef` at `path`.
pub(super) fn resource_ref(reference: &Value, path: &str, purpose: Purpose, errors: &mut Errors) {
    let resource = text(reference, "resource");
    if purpose == Purpose::Volume && text(reference, "containerName").is_empty() {
        errors.push(FieldError::required(child(path, "containerName"), ""));
    }
    let field = child(path, "resource");
    let is_huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    if resource.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !RESOURCES.contains(&resource) && !is_huge {
        errors.push(not_supported(field, resource, RESOURCES));
    } else {
        divisor(reference, path, resource, errors);
    }
}

fn divisor(reference: &Value, path: &str, resource: &str, errors: &mut Errors) {
    let Some(divisor) = present(reference, "divisor").and_then(Value::as_str) else {
        return;
    };
    let Some(amount) = Amount::parse(divisor) else {
        return;
    };
    let (known, what) = match resource.split_once('.') {
        Some((_, "cpu")) => (CPU_DIVISORS, "cpu"),
        Some((_, what)) => (BYTE_DIVISORS, what),
        None => return,
    };
    let is_known = known
        .iter()
        .filter_map(|text| Amount::parse(text))
        .any(|one| one.compare(amount).is_eq());
    if amount.is_zero() || is_known {
        return;
    }
    let list = if what == "cpu" {
        "1m and 1".to_owned()
    } else {
        known.join(", ")
    };
    let detail = format!("only divisor's values {list} are supported with the {what} resource");
    let field = child(path, "divisor");
    errors.push(FieldError::invalid(field, divisor.into(), detail));
}
