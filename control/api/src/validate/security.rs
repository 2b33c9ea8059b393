//! Security contexts of pods and containers.

use serde_json::{Value, json};

use super::names;
use super::{Errors, child, duplicate, items, number, one_of, present, text};
use crate::registry::FieldError;

/// Largest user or group id.
const ID_MAX: i64 = i32::MAX as i64;
/// Longest name of a kernel parameter.
const SYSCTL_BYTES_MAX: usize = 253;
/// What such a name looks like, for messages.
const SYSCTL_FORMAT: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?";

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
    for (key, known) in [
        ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &["Merge", "Strict"]),
    ] {
        if present(context, key).is_some() {
            one_of(context, &path, key, known, errors);
        }
    }
    sysctls(spec, context, &path, errors);
    profiles(context, &path, errors);
}

fn sysctls(spec: &Value, context: &Value, path: &str, errors: &mut Errors) {
    let flag = |key: &str| spec.get(key).and_then(Value::as_bool) == Some(true);
    let mut seen: Vec<&str> = Vec::new();
    for (path, sysctl) in items(context, path, "sysctls") {
        let (name, field) = (text(sysctl, "name"), child(&path, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !is_sysctl(name) {
            let detail = format!(
                "must have at most {SYSCTL_BYTES_MAX} characters and match regex ^{SYSCTL_FORMAT}$"
            );
            errors.push(FieldError::invalid(field, name.into(), detail));
        } else if seen.contains(&name) {
            errors.push(duplicate(field, name));
        }
        seen.push(name);
        let dotted = name.replace('/', ".");
        let of_host = |why: &str| {
            let detail = format!("may not be specified when '{why}' is true");
            FieldError::invalid(child(&path, "name"), name.into(), detail)
        };
        if dotted.starts_with("net.") && flag("hostNetwork") {
            errors.push(of_host("hostNetwork"));
        }
        let is_ipc = dotted.starts_with("fs.mqueue.")
            || dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem";
        if is_ipc && flag("hostIPC") {
            errors.push(of_host("hostIPC"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let inner = |byte: &u8| edge(*byte) || matches!(byte, b'-' | b'_');
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(first, last)| edge(*first) && edge(*last)) && bytes.iter().all(inner)
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(is_part)
}

/// `seccompProfile` and `appArmorProfile`, which look the same.
fn profiles(context: &Value, path: &str, errors: &mut Errors) {
    const KINDS: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];
    for (key, name) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let Some(profile) = present(context, key) else {
            continue;
        };
        let path = child(path, key);
        one_of(profile, &path, "type", KINDS, errors);
        let (file, field) = (
            text(profile, "localhostProfile"),
            child(&path, "localhostProfile"),
        );
        match (text(profile, "type"), file) {
            ("Localhost", "") => {
                let detail = format!("must be set when {name} type is Localhost");
                errors.push(FieldError::required(field, detail));
            }
            ("Localhost", file) if key == "seccompProfile" => {
                super::container::relative(file, &field, errors);
            }
            ("Localhost", _) | (_, "") => (),
            (_, file) => {
                let detail = format!("can only be set when {name} type is Localhost");
                errors.push(FieldError::invalid(field, file.into(), detail));
            }
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
    if present(context, "procMount").is_some() {
        one_of(
            context,
            &path,
            "procMount",
            &["Default", "Unmasked"],
            errors,
        );
    }
    profiles(context, &path, errors);
    let flag = |key: &str| context.get(key).and_then(Value::as_bool);
    if flag("allowPrivilegeEscalation") != Some(false) {
        return;
    }
    if flag("privileged") == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::invalid(path.clone(), context.clone(), detail));
    }
    let capabilities = context.get("capabilities").cloned().unwrap_or_default();
    let added = json!("CAP_SYS_ADMIN");
    if items(&capabilities, "", "add").any(|(_, name)| *name == added) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                      CAP_SYS_ADMIN";
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
