//! Taints and what tolerates them.

use serde_json::Value;

use super::names;
use super::{Errors, child, duplicate, items, not_supported, present, push_messages, text};
use crate::registry::FieldError;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks `tolerations` of a pod.
pub(super) fn tolerations(spec: &Value, path: &str, errors: &mut Errors) {
    for (path, toleration) in items(spec, path, "tolerations") {
        let path = path.as_str();
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            push_messages(errors, &child(path, "key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all \
                          values and all keys\"";
            errors.push(FieldError::invalid(
                child(path, "operator"),
                operator.into(),
                detail,
            ));
        }
        if present(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(
                child(path, "effect"),
                effect.into(),
                detail,
            ));
        }
        match operator {
            "" | "Equal" => {
                let field = child(path, "operator");
                push_messages(errors, &field, value, names::label_value(value));
            }
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(
                    child(path, "operator"),
                    value.into(),
                    detail,
                ));
            }
            "Exists" => (),
            other => {
                let supported = &["Equal", "Exists"];
                errors.push(not_supported(child(path, "operator"), other, supported));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(not_supported(child(path, "effect"), effect, EFFECTS));
        }
    }
}

/// Checks `taints` of a node.
pub(super) fn taints(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (path, taint) in items(spec, path, "taints") {
        let (key, effect) = (text(taint, "key"), text(taint, "effect"));
        let value = text(taint, "value");
        push_messages(
            errors,
            &child(&path, "key"),
            key,
            names::qualified_name(key),
        );
        push_messages(
            errors,
            &child(&path, "value"),
            value,
            names::label_value(value),
        );
        match effect {
            "" => errors.push(FieldError::required(child(&path, "effect"), "")),
            effect if !EFFECTS.contains(&effect) => {
                errors.push(not_supported(child(&path, "effect"), effect, EFFECTS));
            }
            _ => (),
        }
        if seen.contains(&(key, effect)) {
            let mut error = duplicate(path, taint.clone());
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            errors.push(error);
        }
        seen.push((key, effect));
    }
}
