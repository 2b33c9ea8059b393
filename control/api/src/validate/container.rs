//! Containers of a pod.

use serde_json::Value;

use super::downward::{self, Purpose::Environment};
use super::names;
use super::{
    Errors, child, duplicate, items, not_found, number, one_of, present, probe, push_messages,
    quantities, required, restart, security, text,
};
use crate::registry::FieldError;

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: &[&str] = &["FallbackToLogsOnError", "File"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
/// The four places from which a variable's value may come.
const VALUE_SOURCES: &[&str] = &[
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

/// What a container may refer to in its pod.
pub(super) struct PodContext<'a> {
    /// Names of the pod's volumes.
    pub(super) volumes: Vec<&'a str>,
    /// Whether the pod uses the host's network.
    pub(super) host_network: bool,
    /// `spec.restartPolicy`.
    pub(super) restart_policy: &'a str,
    /// `spec.terminationGracePeriodSeconds`.
    pub(super) grace_period_s: Option<i64>,
    /// `spec.os.name`.
    pub(super) os: Option<&'a str>,
}

/// Checks one container.
pub(super) fn container(
    container: &Value,
    path: &str,
    context: &PodContext<'_>,
    errors: &mut Errors,
) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(child(path, "name"), ""));
    } else {
        push_messages(errors, &child(path, "name"), name, names::label(name));
    }
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(child(path, "image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(
            child(path, "image"),
            image.into(),
            detail,
        ));
    }
    one_of(container, path, "imagePullPolicy", PULL_POLICIES, errors);
    one_of(
        container,
        path,
        "terminationMessagePolicy",
        MESSAGE_POLICIES,
        errors,
    );
    ports(container, path, context.host_network, errors);
    environment(container, path, errors);
    mounts(container, path, &context.volumes, errors);
    quantities::container_resources(container, path, errors);
    restart::resize_policy(container, path, context.restart_policy, errors);
    security::container(container, path, errors);
}

/// Checks what main containers and sidecars alone may have.
pub(super) fn lifecycle_and_probes(
    container: &Value,
    path: &str,
    context: &PodContext<'_>,
    errors: &mut Errors,
) {
    probe::lifecycle(container, path, context, errors);
    probe::probes(container, path, errors);
}

/// Checks that an init container has nothing that only a container that stays may have.
pub(super) fn init_container(
    container: &Value,
    path: &str,
    context: &PodContext<'_>,
    errors: &mut Errors,
) {
    if text(container, "restartPolicy") == "Always" {
        lifecycle_and_probes(container, path, context, errors);
        return;
    }
    for key in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        if present(container, key).is_some() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(child(path, key), detail));
        }
    }
}

fn ports(container: &Value, path: &str, host_network: bool, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (path, port) in items(container, path, "ports") {
        let path = path.as_str();
        let name = text(port, "name");
        if !name.is_empty() {
            push_messages(errors, &child(path, "name"), name, names::port_name(name));
            if seen.contains(&name) {
                errors.push(duplicate(child(path, "name"), name));
            }
            seen.push(name);
        }
        let container_port = number(port, "containerPort").unwrap_or_default();
        if container_port == 0 {
            errors.push(FieldError::required(child(path, "containerPort"), ""));
        } else {
            port_range(container_port, &child(path, "containerPort"), errors);
        }
        let host_port = number(port, "hostPort").unwrap_or_default();
        if host_port != 0 {
            port_range(host_port, &child(path, "hostPort"), errors);
        }
        if host_network && host_port != container_port {
            let detail = "must match `hostPort` when `hostNetwork` is true";
            let field = child(path, "containerPort");
            errors.push(FieldError::invalid(field, container_port.into(), detail));
        }
        one_of(port, path, "protocol", PROTOCOLS, errors);
    }
}

fn port_range(port: i64, field: &str, errors: &mut Errors) {
    for message in names::port_number(port) {
        errors.push(FieldError::invalid(field, port.into(), message));
    }
}

fn environment(container: &Value, path: &str, errors: &mut Errors) {
    for (path, variable) in items(container, path, "env") {
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(child(&path, "name"), ""));
        } else {
            let messages = names::environment_name(name);
            push_messages(errors, &child(&path, "name"), name, messages);
        }
        if let Some(source) = present(variable, "valueFrom") {
            let filled = !text(variable, "value").is_empty();
            value_from(source, &child(&path, "valueFrom"), filled, errors);
        }
    }
    for (path, source) in items(container, path, "envFrom") {
        let sources: Vec<&str> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|key| present(source, key).is_some())
            .collect();
        match sources.as_slice() {
            [] => {
                let detail = "must specify one of: `configMapRef` or `secretRef`";
                errors.push(FieldError::invalid(path, "".into(), detail));
            }
            [key] => required(&source[*key], &child(&path, key), "name", errors),
            _ => {
                let detail = "may not have more than one field specified at a time";
                errors.push(FieldError::invalid(path, "".into(), detail));
            }
        }
    }
}

fn value_from(source: &Value, path: &str, has_value: bool, errors: &mut Errors) {
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(path, "".into(), detail));
    let found: Vec<&&str> = VALUE_SOURCES
        .iter()
        .filter(|key| present(source, key).is_some())
        .collect();
    if found.is_empty() {
        refuse(
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or \
             `secretKeyRef`",
        );
    } else if has_value {
        refuse("may not be specified when `value` is not empty");
    } else if found.len() > 1 {
        refuse("may not have more than one field specified at a time");
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = present(source, key) else {
            continue;
        };
        let path = child(path, key);
        required(reference, &path, "name", errors);
        let key = text(reference, "key");
        if key.is_empty() {
            errors.push(FieldError::required(child(&path, "key"), ""));
        } else {
            push_messages(errors, &child(&path, "key"), key, names::config_key(key));
        }
    }
    if let Some(reference) = present(source, "fieldRef") {
        downward::field_ref(reference, &child(path, "fieldRef"), Environment, errors);
    }
    if let Some(reference) = present(source, "resourceFieldRef") {
        let path = child(path, "resourceFieldRef");
        downward::resource_ref(reference, &path, Environment, errors);
    }
}

fn mounts(container: &Value, path: &str, volumes: &[&str], errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (path, mount) in items(container, path, "volumeMounts") {
        let path = path.as_str();
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(child(path, "name"), ""));
        } else if !volumes.contains(&name) {
            errors.push(not_found(child(path, "name"), name));
        }
        let target = text(mount, "mountPath");
        if target.is_empty() {
            errors.push(FieldError::required(child(path, "mountPath"), ""));
        } else if seen.contains(&target) {
            let field = child(path, "mountPath");
            errors.push(FieldError::invalid(field, target.into(), "must be unique"));
        }
        seen.push(target);
        propagation(container, mount, path, errors);
        for key in ["subPath", "subPathExpr"] {
            relative(text(mount, key), &child(path, key), errors);
        }
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            let field = child(path, "subPathExpr");
            errors.push(FieldError::invalid(
                field,
                text(mount, "subPathExpr").into(),
                detail,
            ));
        }
    }
}

/// Which mounts of the host reach the container, and the other way round.
fn propagation(container: &Value, mount: &Value, path: &str, errors: &mut Errors) {
    const KINDS: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    if present(mount, "mountPropagation").is_some() {
        one_of(mount, path, "mountPropagation", KINDS, errors);
    }
    let kind = text(mount, "mountPropagation");
    let privileged = container.pointer("/securityContext/privileged");
    if kind == "Bidirectional" && privileged.and_then(Value::as_bool) != Some(true) {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        let field = child(path, "mountPropagation");
        errors.push(FieldError::forbidden(field, detail));
    }
    let recursive = text(mount, "recursiveReadOnly");
    if recursive.is_empty() {
        return;
    }
    let known = &["Disabled", "Enabled", "IfPossible"];
    one_of(mount, path, "recursiveReadOnly", known, errors);
    if recursive == "Disabled" {
        return;
    }
    let field = child(path, "recursiveReadOnly");
    if mount.get("readOnly").and_then(Value::as_bool) != Some(true) {
        let detail = "may only be specified when readOnly is true";
        errors.push(FieldError::forbidden(field, detail));
    } else if !matches!(kind, "" | "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.push(FieldError::forbidden(field, detail));
    }
}

/// A path below something else, that does not leave it.
pub(super) fn relative(path: &str, field: &str, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.push(FieldError::invalid(
            field,
            path.into(),
            "must be a relative path",
        ));
    }
    no_way_up(path, field, errors);
}

/// A path without `..`.
pub(super) fn no_way_up(path: &str, field: &str, errors: &mut Errors) {
    if path.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(
            field,
            path.into(),
            "must not contain '..'",
        ));
    }
}
