//! Ephemeral containers (Kubernetes: `validateEphemeralContainers`).

use serde_json::Value;

use super::container::{self, PodContext};
use super::metadata::object_update;
use super::pod_update::mirror_annotation;
use super::{Errors, child, duplicate, items, not_found, text};
use crate::admission::is_mirror;
use crate::registry::FieldError;

/// What a container that is there for a look may have.
const ALLOWED: &[&str] = &[
    "name",
    "targetContainerName",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
];
const NOT_ALLOWED: &str = "cannot be set for an Ephemeral Container";

/// Checks `ephemeralContainers`. `taken` are the names of the pod's other containers.
pub(super) fn ephemeral_containers(
    spec: &Value,
    path: &str,
    context: &PodContext<'_>,
    taken: &[&str],
    errors: &mut Errors,
) {
    let mut seen = taken.to_vec();
    for (path, item) in items(spec, path, "ephemeralContainers") {
        container::container(item, &path, context, errors);
        let name = text(item, "name");
        if !name.is_empty() && seen.contains(&name) {
            errors.push(duplicate(child(&path, "name"), name));
        }
        seen.push(name);
        let target = text(item, "targetContainerName");
        if !target.is_empty() && !taken.contains(&target) {
            errors.push(not_found(child(&path, "targetContainerName"), target));
        }
        for (key, value) in item.as_object().into_iter().flatten() {
            if !ALLOWED.contains(&key.as_str()) && !is_zero(value) {
                errors.push(FieldError::forbidden(child(&path, key), NOT_ALLOWED));
            }
        }
        for (path, mount) in items(item, &path, "volumeMounts") {
            for key in ["subPath", "subPathExpr"] {
                if !text(mount, key).is_empty() {
                    errors.push(FieldError::forbidden(child(&path, key), NOT_ALLOWED));
                }
            }
        }
    }
}

/// What a Go client sends for a field that was not set.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Checks a change of `ephemeralContainers`: they can be added, and nothing else.
pub fn ephemeral_containers_update(new: &Value, old: &Value) -> Vec<FieldError> {
    if is_mirror(old) {
        let detail = "static pods do not support ephemeral containers";
        return vec![FieldError::forbidden("", detail)];
    }
    let mut errors = object_update(new, old);
    mirror_annotation(new, old, &mut errors);
    let null = Value::Null;
    let spec = |object: &Value| object.get("spec").unwrap_or(&null).clone();
    let (new, old) = (spec(new), spec(old));
    for (_, old) in items(&old, "", "ephemeralContainers") {
        let name = text(old, "name");
        let kept =
            items(&new, "", "ephemeralContainers").find(|(_, new)| text(new, "name") == name);
        let what = match kept {
            None => "removed",
            Some((_, new)) if new != old => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    errors
}
