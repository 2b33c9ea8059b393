//! What of a pod's resources may change while it runs (Kubernetes: `ValidatePodResize`).

use serde_json::Value;

use super::metadata::object_update;
use super::pod_update::mirror_annotation;
use super::{Errors, items, map, present, text};
use crate::admission::is_mirror;
use crate::registry::FieldError;
use crate::strategy::{keep, qos_class};

/// Resources that can be given and taken while a container runs.
const MUTABLE: [&str; 2] = ["cpu", "memory"];

/// Checks a resize.
pub fn pod_resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let null = Value::Null;
    let (new_spec, old_spec) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    let whole = |detail| vec![FieldError::forbidden("", detail)];
    if present(old_spec, "resources")
        .is_some_and(|all| all.as_object().is_some_and(|it| !it.is_empty()))
    {
        return whole("pods with pod-level resources cannot be resized");
    }
    if is_mirror(old) {
        return whole("static pods cannot be resized");
    }
    let mut errors = object_update(new, old);
    mirror_annotation(new, old, &mut errors);
    let class = qos_class(new_spec);
    let old_class = old.pointer("/status/qosClass").and_then(Value::as_str);
    if old_class.unwrap_or_else(|| qos_class(old_spec)) != class {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid("spec", class.into(), detail));
    }
    if !same_order(new_spec, old_spec, &mut errors) {
        return errors;
    }
    let mut expected = new_spec.clone();
    for list in ["containers", "initContainers"] {
        for (index, (path, old)) in items(old_spec, "spec", list).enumerate() {
            let pointer = format!("/{list}/{index}");
            let Some(new) = new_spec.pointer(&pointer) else {
                continue;
            };
            removed(new, old, &path, &mut errors);
            let is_sidecar = text(old, "restartPolicy") == "Always";
            if list == "initContainers" && !is_sidecar {
                if new.get("resources") != old.get("resources") {
                    let detail = "resources for non-sidecar init containers are immutable";
                    errors.push(FieldError::forbidden(format!("{path}.resources"), detail));
                }
                if let Some(expected) = expected.pointer_mut(&pointer) {
                    keep(expected, old, "resources");
                }
            } else if let Some(expected) = expected.pointer_mut(&pointer) {
                restore_mutable(expected, old);
            }
        }
    }
    if expected != *old_spec {
        let detail = "only cpu and memory resources are mutable";
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

fn same_order(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let before = errors.len();
    for list in ["containers", "initContainers"] {
        let names = |spec| -> Vec<&str> {
            items(spec, "", list)
                .map(|(_, one)| text(one, "name"))
                .collect()
        };
        let (new, old) = (names(new), names(old));
        let detail = if new.len() != old.len() {
            format!("{list} may not be added or removed on resize")
        } else if new != old {
            format!("{list} may not be renamed or reordered on resize")
        } else {
            continue;
        };
        errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
    }
    errors.len() == before
}

/// An amount that was set may change, and not vanish.
fn removed(new: &Value, old: &Value, path: &str, errors: &mut Errors) {
    let null = Value::Null;
    let resources = |container: &Value| container.get("resources").unwrap_or(&null).clone();
    let (new, old) = (resources(new), resources(old));
    for (key, what) in [("requests", "requests"), ("limits", "limits")] {
        let gone =
            map(&old, key).any(|(name, _)| new.get(key).and_then(|it| it.get(name)).is_none());
        if gone {
            let detail = format!("resource {what} cannot be removed");
            let field = format!("{path}.resources.{key}");
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}

/// Puts the old amounts of what may change into a container.
fn restore_mutable(container: &mut Value, old: &Value) {
    for key in ["requests", "limits"] {
        for name in MUTABLE {
            let was = old.pointer(&format!("/resources/{key}/{name}")).cloned();
            let Some(resources) = container.get_mut("resources") else {
                continue;
            };
            match was {
                Some(was) => resources[key][name] = was,
                None => {
                    if let Some(amounts) = resources.get_mut(key).and_then(Value::as_object_mut) {
                        amounts.remove(name);
                    }
                }
            }
            let is_empty = |it: &Value| it.as_object().is_some_and(serde_json::Map::is_empty);
            if resources.get(key).is_some_and(is_empty)
                && old.pointer(&format!("/resources/{key}")).is_none()
                && let Some(resources) = resources.as_object_mut()
            {
                resources.remove(key);
            }
        }
    }
}
