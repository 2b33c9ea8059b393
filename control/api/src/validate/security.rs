//! Security contexts of pods and containers.

use serde_json::Value;

use super::names;
use super::{Errors, child, items, number, present};
use crate::registry::FieldError;

/// Largest user or group id.
const ID_MAX: i64 = i32::MAX as i64;

/// Checks `securityContext` of a pod.
pub(super) fn pod(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(context) = present(spec, "securityContext") else {
        return;
    };
    let path = child(path, "securityContext");
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        id(context, &path, key, errors);
    }
    for (path, group) in items(context, &path, "supplementalGroups") {
        let group = group.as_i64().unwrap_or(-1);
        for message in names::between(group, 0, ID_MAX) {
            errors.push(FieldError::invalid(path.clone(), group.into(), message));
        }
    }
}

/// Checks `securityContext` of a container.
pub(super) fn container(container: &Value, path: &str, errors: &mut Errors) {
    let Some(context) = present(container, "securityContext") else {
        return;
    };
    let path = child(path, "securityContext");
    for key in ["runAsUser", "runAsGroup"] {
        id(context, &path, key, errors);
    }
    let flag = |key: &str| context.get(key).and_then(Value::as_bool);
    if flag("allowPrivilegeEscalation") == Some(false) && flag("privileged") == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::invalid(path, context.clone(), detail));
    }
}

fn id(context: &Value, path: &str, key: &str, errors: &mut Errors) {
    let Some(id) = number(context, key) else {
        return;
    };
    for message in names::between(id, 0, ID_MAX) {
        errors.push(FieldError::invalid(child(path, key), id.into(), message));
    }
}
