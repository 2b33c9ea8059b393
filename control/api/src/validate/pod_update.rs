//! What of a pod may change.

use serde_json::Value;

use super::metadata::object_update;
use super::{Errors, immutable, items, number, text};
use crate::admission::MIRROR;
use crate::registry::FieldError;

const MAY_CHANGE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks the change of a pod.
pub fn pod_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    mirror_annotation(new, old, &mut errors);
    let null = Value::Null;
    let (new_spec, old_spec) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    for list in ["containers", "initContainers"] {
        if !same_length(new_spec, old_spec, list) {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return errors;
        }
    }
    active_deadline(new_spec, old_spec, &mut errors);
    let mut expected = new_spec.clone();
    restore_mutable(&mut expected, old_spec);
    if additions_only(new_spec, old_spec) {
        restore(&mut expected, old_spec, "tolerations");
    }
    if number(old_spec, "terminationGracePeriodSeconds").is_some_and(|old| old < 0)
        && number(new_spec, "terminationGracePeriodSeconds") == Some(1)
    {
        restore(&mut expected, old_spec, "terminationGracePeriodSeconds");
    }
    let changed = changed_fields(&expected, old_spec);
    if !changed.is_empty() {
        let detail = format!("{MAY_CHANGE}\nchanged: {}", changed.join(", "));
        errors.push(FieldError::forbidden("spec", detail));
    }
    immutable(new, old, "/status/qosClass", "status.qosClass", &mut errors);
    errors
}

/// A pod mirrors one of a node's own pods from its first moment to its last, or never.
pub(super) fn mirror_annotation(new: &Value, old: &Value, errors: &mut Errors) {
    let pointer = "/metadata/annotations/kubernetes.io~1config.mirror";
    let detail = match (new.pointer(pointer), old.pointer(pointer)) {
        (Some(_), None) => "may not add mirror pod annotation",
        (new, Some(old)) if new != Some(old) => "may not remove or update mirror pod annotation",
        _ => return,
    };
    let field = format!("metadata.annotations[{MIRROR}]");
    errors.push(FieldError::forbidden(field, detail));
}

fn same_length(new: &Value, old: &Value, list: &str) -> bool {
    items(new, "", list).count() == items(old, "", list).count()
}

/// Puts the old values of what may change into the new specification.
fn restore_mutable(spec: &mut Value, old: &Value) {
    restore(spec, old, "activeDeadlineSeconds");
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, (_, old)) in containers.iter_mut().zip(items(old, "", list)) {
            // An image may not become empty; `validate` has said so already.
            restore(container, old, "image");
        }
    }
}

fn restore(new: &mut Value, old: &Value, key: &str) {
    crate::strategy::keep(new, old, key);
}

/// A deadline may be set or shortened, not lengthened or removed.
fn active_deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let key = "activeDeadlineSeconds";
    let field = "spec.activeDeadlineSeconds";
    match (number(new, key), number(old, key)) {
        (Some(new), Some(old)) if new > old => {
            let detail = format!("must be less than or equal to previous value '{old}'");
            errors.push(FieldError::invalid(field, new.into(), detail));
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(field, Value::Null, detail));
        }
        _ => (),
    }
}

/// Whether every old toleration is still there, with nothing changed but its seconds.
fn additions_only(new: &Value, old: &Value) -> bool {
    let same = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"]
            .iter()
            .all(|key| text(a, key) == text(b, key))
    };
    items(old, "", "tolerations")
        .all(|(_, old)| items(new, "", "tolerations").any(|(_, new)| same(new, old)))
}

/// The top-level fields in which two specifications differ.
fn changed_fields(new: &Value, old: &Value) -> Vec<String> {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return if new == old {
            Vec::new()
        } else {
            vec!["spec".into()]
        };
    };
    let mut keys: Vec<&String> = new.keys().chain(old.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| new.get(*key) != old.get(*key))
        .map(|key| format!("spec.{key}"))
        .collect()
}
