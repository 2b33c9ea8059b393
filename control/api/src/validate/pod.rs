//! Pods and the pods in templates.

use std::net::IpAddr;

use serde_json::Value;

use super::container::{self, PodContext};
use super::metadata::{Scope, labels, metadata};
use super::names;
use super::{
    Errors, child, duplicate, ephemeral, items, number, one_of, pod_fields, present, push_messages,
    quantities, required, restart, security, text, tolerations, volumes,
};
use crate::admission::MIRROR;
use crate::registry::FieldError;

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Checks a pod.
pub fn pod(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    let mirrors = object.pointer("/metadata/annotations/kubernetes.io~1config.mirror");
    if let Some(mirrors) = mirrors
        && text(spec, "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        let field = format!("metadata.annotations[{MIRROR}]");
        errors.push(FieldError::invalid(field, mirrors.clone(), detail));
    }
    pod_spec(spec, "spec", &mut errors);
    errors
}

/// Checks what a new pod may not have yet.
pub fn pod_create(object: &Value) -> Vec<FieldError> {
    if object.pointer("/spec/ephemeralContainers/0").is_none() {
        return Vec::new();
    }
    let detail = "cannot be set on create";
    vec![FieldError::forbidden("spec.ephemeralContainers", detail)]
}

/// Checks a pod's specification at `path`.
pub(super) fn pod_spec(spec: &Value, path: &str, errors: &mut Errors) {
    let context = PodContext {
        volumes: volumes::volumes(spec, path, errors),
        host_network: spec
            .get("hostNetwork")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
        restart_policy: text(spec, "restartPolicy"),
        grace_period_s: number(spec, "terminationGracePeriodSeconds"),
        os: spec.pointer("/os/name").and_then(Value::as_str),
    };
    containers(spec, path, &context, errors);
    host_ports(spec, path, errors);
    one_of(spec, path, "restartPolicy", RESTART_POLICIES, errors);
    one_of(spec, path, "dnsPolicy", DNS_POLICIES, errors);
    if text(spec, "dnsPolicy") == "None" && spec.pointer("/dnsConfig/nameservers/0").is_none() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.push(FieldError::required(
            child(path, "dnsConfig.nameservers"),
            detail,
        ));
    }
    super::not_negative(spec, path, "terminationGracePeriodSeconds", errors);
    if let Some(deadline) = number(spec, "activeDeadlineSeconds") {
        for message in names::between(deadline, 1, i64::from(i32::MAX)) {
            let field = child(path, "activeDeadlineSeconds");
            errors.push(FieldError::invalid(field, deadline.into(), message));
        }
    }
    security::pod(spec, path, errors);
    pod_fields::fields(spec, path, errors);
    quantities::container_resources(spec, path, errors);
    labels(spec, path, "nodeSelector", errors);
    tolerations::tolerations(spec, path, errors);
    name_fields(spec, path, errors);
    spread_constraints(spec, path, errors);
}

fn containers(spec: &Value, path: &str, context: &PodContext<'_>, errors: &mut Errors) {
    if items(spec, path, "containers").next().is_none() {
        errors.push(FieldError::required(child(path, "containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (path, item) in items(spec, path, list) {
            container::container(item, &path, context, errors);
            if list == "containers" {
                container::lifecycle_and_probes(item, &path, context, errors);
            } else {
                container::init_container(item, &path, context, errors);
            }
            restart::restart_policy(item, &path, errors);
            let name = text(item, "name");
            if !name.is_empty() && seen.contains(&name) {
                errors.push(duplicate(child(&path, "name"), name));
            }
            seen.push(name);
        }
    }
    ephemeral::ephemeral_containers(spec, path, context, &seen, errors);
}

/// A port of the host is given to one container only.
fn host_ports(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (path, container) in items(spec, path, "containers") {
        for (path, port) in items(container, &path, "ports") {
            let number = number(port, "hostPort").unwrap_or_default();
            if number == 0 {
                continue;
            }
            let key = format!(
                "{}/{}/{number}",
                text(port, "protocol"),
                text(port, "hostIP")
            );
            if seen.contains(&key) {
                errors.push(duplicate(child(&path, "hostPort"), key.clone()));
            }
            seen.push(key);
        }
    }
}

fn name_fields(spec: &Value, path: &str, errors: &mut Errors) {
    let rules: [(&str, names::Rule); 6] = [
        ("serviceAccountName", names::subdomain),
        ("nodeName", names::subdomain),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
    ];
    for (key, rule) in rules {
        let value = text(spec, key);
        if !value.is_empty() {
            push_messages(errors, &child(path, key), value, rule(value));
        }
    }
    let scheduler = text(spec, "schedulerName");
    if !scheduler.is_empty() {
        let messages = names::qualified_name(scheduler);
        push_messages(errors, &child(path, "schedulerName"), scheduler, messages);
    }
    for (path, secret) in items(spec, path, "imagePullSecrets") {
        required(secret, &path, "name", errors);
    }
    for (path, alias) in items(spec, path, "hostAliases") {
        let ip = text(alias, "ip");
        if ip.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(child(&path, "ip"), ip.into(), detail));
        }
        for (path, name) in items(alias, &path, "hostnames") {
            let name = name.as_str().unwrap_or_default();
            push_messages(errors, &path, name, names::subdomain(name));
        }
    }
}

fn spread_constraints(spec: &Value, path: &str, errors: &mut Errors) {
    for (path, constraint) in items(spec, path, "topologySpreadConstraints") {
        let skew = number(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            let field = child(&path, "maxSkew");
            errors.push(FieldError::invalid(
                field,
                skew.into(),
                "must be greater than zero",
            ));
        }
        if text(constraint, "topologyKey").is_empty() {
            let detail = "can not be empty";
            errors.push(FieldError::required(child(&path, "topologyKey"), detail));
        }
        let supported = &["DoNotSchedule", "ScheduleAnyway"];
        one_of(constraint, &path, "whenUnsatisfiable", supported, errors);
        if let Some(selector) = present(constraint, "labelSelector") {
            let path = child(&path, "labelSelector");
            super::label_selector::label_selector(selector, &path, errors);
        }
    }
}
