//! Services (Kubernetes: `ValidateService`).

use std::net::IpAddr;

use serde_json::Value;

use super::metadata::{Scope, labels, metadata, object_update};
use super::{Errors, child, duplicate, items, names, number, one_of, present, push_messages, text};
use crate::registry::FieldError;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const POLICIES: &[&str] = &["Cluster", "Local"];
/// The kubelet's own port, which no load balancer may show.
const KUBELET_PORT: i64 = 10_250;
/// Longest time that a client stays with its pod: a day.
const AFFINITY_MAX_S: i64 = 86_400;

/// Checks a Service.
pub fn service(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::label_1035, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    let kind = text(spec, "type");
    let address = text(spec, "clusterIP");
    if items(spec, "", "ports").next().is_none() && address != "None" && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    by_type(spec, kind, address, &mut errors);
    ports(spec, kind, &mut errors);
    labels(spec, "spec", "selector", &mut errors);
    affinity(spec, &mut errors);
    if !matches!(address, "" | "None") && address.parse::<IpAddr>().is_err() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            address.into(),
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ));
    }
    for (path, ip) in items(spec, "spec", "externalIPs") {
        let ip = ip.as_str().unwrap_or_default();
        if ip.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(path, ip.into(), detail));
        }
    }
    one_of(spec, "spec", "type", TYPES, &mut errors);
    policies(spec, kind, &mut errors);
    errors
}

fn by_type(spec: &Value, kind: &str, address: &str, errors: &mut Errors) {
    match kind {
        "LoadBalancer" => {
            for (path, port) in items(spec, "spec", "ports") {
                if number(port, "port") == Some(KUBELET_PORT) {
                    let detail = format!(
                        "may not expose port {KUBELET_PORT} externally since it is used by kubelet"
                    );
                    errors.push(FieldError::invalid(path, KUBELET_PORT.into(), detail));
                }
            }
            no_headless(address, kind, errors);
        }
        "NodePort" => no_headless(address, kind, errors),
        "ExternalName" => {
            if !address.is_empty() {
                let detail = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden("spec.clusterIPs[0]", detail));
            }
            // Names of the DNS may end with a dot.
            let name = text(spec, "externalName");
            let plain = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                let messages = names::subdomain(&plain.to_lowercase());
                push_messages(errors, "spec.externalName", name, messages);
            }
        }
        _ => (),
    }
}

fn no_headless(address: &str, kind: &str, errors: &mut Errors) {
    if address == "None" {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            address.into(),
            detail,
        ));
    }
}

fn ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let several = items(spec, "", "ports").count() > 1;
    let (mut seen_names, mut seen, mut seen_on_nodes) = (Vec::new(), Vec::new(), Vec::new());
    for (path, port) in items(spec, "spec", "ports") {
        let path = path.as_str();
        let name = text(port, "name");
        if !name.is_empty() {
            push_messages(errors, &child(path, "name"), name, names::label(name));
            if seen_names.contains(&name) {
                errors.push(duplicate(child(path, "name"), name));
            }
            seen_names.push(name);
        } else if several {
            errors.push(FieldError::required(child(path, "name"), ""));
        }
        let own = number(port, "port").unwrap_or_default();
        port_number(own, &child(path, "port"), errors);
        one_of(port, path, "protocol", PROTOCOLS, errors);
        target(port, path, errors);
        let protocol = text(port, "protocol");
        if seen.contains(&(protocol, own)) {
            let value = serde_json::json!({ "protocol": protocol, "port": own });
            errors.push(duplicate(path.to_owned(), value));
        }
        seen.push((protocol, own));
        let on_nodes = number(port, "nodePort").unwrap_or_default();
        if on_nodes == 0 {
            continue;
        }
        let field = child(path, "nodePort");
        if kind == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(field.clone(), detail));
        }
        if seen_on_nodes.contains(&(protocol, on_nodes)) {
            errors.push(duplicate(field, on_nodes));
        }
        seen_on_nodes.push((protocol, on_nodes));
    }
}

fn port_number(port: i64, field: &str, errors: &mut Errors) {
    for message in names::port_number(port) {
        errors.push(FieldError::invalid(field, port.into(), message));
    }
}

fn target(port: &Value, path: &str, errors: &mut Errors) {
    let field = child(path, "targetPort");
    match port.get("targetPort") {
        Some(Value::String(name)) => push_messages(errors, &field, name, names::port_name(name)),
        target => port_number(
            target.and_then(Value::as_i64).unwrap_or_default(),
            &field,
            errors,
        ),
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    one_of(
        spec,
        "spec",
        "sessionAffinity",
        &["ClientIP", "None"],
        errors,
    );
    let seconds = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds");
    if let Some(seconds) = seconds.and_then(Value::as_i64)
        && !(1..=AFFINITY_MAX_S).contains(&seconds)
    {
        let detail = format!("must be greater than 0 and less than {AFFINITY_MAX_S}");
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(field, seconds.into(), detail));
    }
}

fn policies(spec: &Value, kind: &str, errors: &mut Errors) {
    let is_external = matches!(kind, "NodePort" | "LoadBalancer")
        || items(spec, "", "externalIPs").next().is_some();
    let external = text(spec, "externalTrafficPolicy");
    if !external.is_empty() {
        if is_external {
            one_of(spec, "spec", "externalTrafficPolicy", POLICIES, errors);
        } else {
            let detail = "may only be set for externally-accessible services";
            let field = "spec.externalTrafficPolicy";
            errors.push(FieldError::invalid(field, external.into(), detail));
        }
    }
    if present(spec, "internalTrafficPolicy").is_some() {
        one_of(spec, "spec", "internalTrafficPolicy", POLICIES, errors);
    } else if matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        errors.push(FieldError::required("spec.internalTrafficPolicy", ""));
    }
}

/// Checks the change of a Service: an address stays as long as one is needed.
pub fn service_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    let named = |object: &Value| object.pointer("/spec/type") == Some(&"ExternalName".into());
    let had = old.pointer("/spec/clusterIP").and_then(Value::as_str);
    if !named(new) && !named(old) && had.is_some_and(|address| !address.is_empty()) {
        let (pointer, field) = ("/spec/clusterIP", "spec.clusterIPs[0]");
        // One that is left out is put back.
        let sent = new.pointer(pointer).and_then(Value::as_str);
        if !sent.unwrap_or_default().is_empty() && sent != had {
            let addresses = new.pointer("/spec/clusterIPs").cloned().unwrap_or_default();
            let detail = "may not change once set";
            errors.push(FieldError::invalid(field, addresses, detail));
        }
    }
    errors
}
