//! Amounts of resources.

use serde_json::Value;

use super::names;
use super::{Errors, child, map, push_messages};
use crate::registry::FieldError;
use crate::strategy::{Amount, NOT_A_QUANTITY};

/// Checks `resources` of a container.
pub(super) fn container_resources(container: &Value, path: &str, errors: &mut Errors) {
    let Some(resources) = container.get("resources") else {
        return;
    };
    let path = child(path, "resources");
    amounts(resources, &path, "limits", errors);
    amounts(resources, &path, "requests", errors);
    for (name, request) in map(resources, "requests") {
        let limit = resources.get("limits").and_then(|limits| limits.get(name));
        let (Some(request), Some(limit)) = (request.as_str(), limit.and_then(Value::as_str)) else {
            if limit.is_none() && !may_overcommit(name) {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(child(&path, "limits"), detail));
            }
            continue;
        };
        let (Some(requested), Some(limited)) = (Amount::parse(request), Amount::parse(limit))
        else {
            continue;
        };
        let field = child(&path, "requests");
        if !may_overcommit(name) && requested.compare(limited).is_ne() {
            let detail = format!("must be equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(field, request.into(), detail));
        } else if requested.compare(limited).is_gt() {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(field, request.into(), detail));
        }
    }
}

/// Checks a list of amounts by name.
fn amounts(resources: &Value, path: &str, key: &str, errors: &mut Errors) {
    let path = child(path, key);
    for (name, amount) in map(resources, key) {
        container_resource_name(name, &path, errors);
        amount_value(amount, &child(&path, name), name, errors);
    }
}

/// Checks one amount: not negative, and whole where it cannot be shared.
pub(super) fn amount_value(amount: &Value, field: &str, name: &str, errors: &mut Errors) {
    let text = amount.as_str().unwrap_or_default();
    let Some(parsed) = Amount::parse(text) else {
        errors.push(FieldError::invalid(field, amount.clone(), NOT_A_QUANTITY));
        return;
    };
    if parsed.is_negative() {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(field, text.into(), detail));
    }
    if !may_overcommit(name) && !parsed.is_whole() {
        errors.push(FieldError::invalid(
            field,
            text.into(),
            "must be an integer",
        ));
    }
}

fn container_resource_name(name: &str, path: &str, errors: &mut Errors) {
    push_messages(errors, path, name, names::qualified_name(name));
    let standard =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !standard {
        let detail = "must be a standard resource for containers";
        errors.push(FieldError::invalid(path, name.into(), detail));
    }
}

/// Whether more may be promised than there is; not so for huge pages and devices.
fn may_overcommit(name: &str) -> bool {
    let ours = !name.contains('/') || name.contains("kubernetes.io/");
    ours && !name.starts_with("hugepages-")
}
