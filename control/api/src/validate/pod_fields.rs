//! Fields of a pod beside its containers and volumes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::quantities::amount_value;
use super::{Errors, child, duplicate, items, map, names, one_of, present, push_messages, text};
use crate::registry::FieldError;

/// Most name servers, and most search domains with their length (`MaxDNSNameservers` …).
const NAME_SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;

/// Checks fields of a pod that do not depend on its containers.
pub(super) fn fields(spec: &Value, path: &str, errors: &mut Errors) {
    for (path, gate) in items(spec, path, "readinessGates") {
        let name = text(gate, "conditionType");
        let messages = names::qualified_name(name);
        push_messages(errors, &child(&path, "conditionType"), name, messages);
    }
    scheduling_gates(spec, path, errors);
    dns(spec, path, errors);
    namespaces(spec, path, errors);
    if let Some(os) = present(spec, "os") {
        one_of(
            os,
            &child(path, "os"),
            "name",
            &["linux", "windows"],
            errors,
        );
    }
    if present(spec, "preemptionPolicy").is_some() {
        let known = &["Never", "PreemptLowerPriority"];
        one_of(spec, path, "preemptionPolicy", known, errors);
    }
    for (name, amount) in map(spec, "overhead") {
        let field = format!("{}[{name}]", child(path, "overhead"));
        amount_value(amount, &field, name, errors);
    }
}

fn scheduling_gates(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (path, gate) in items(spec, path, "schedulingGates") {
        let name = text(gate, "name");
        push_messages(errors, &path, name, names::qualified_name(name));
        if seen.contains(&name) {
            errors.push(duplicate(path, name));
        }
        seen.push(name);
    }
    if !seen.is_empty() && !text(spec, "nodeName").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(child(path, "nodeName"), detail));
    }
}

fn dns(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(config) = present(spec, "dnsConfig") else {
        return;
    };
    let path = child(path, "dnsConfig");
    let mut count = 0;
    for (path, server) in items(config, &path, "nameservers") {
        count += 1;
        let server = server.as_str().unwrap_or_default();
        if server.parse::<IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(path, server.into(), detail));
        }
    }
    if count > NAME_SERVERS_MAX {
        let detail = format!("must not have more than {NAME_SERVERS_MAX} nameservers");
        let all = config.get("nameservers").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            child(&path, "nameservers"),
            all,
            detail,
        ));
    }
    searches(config, &path, errors);
    for (path, option) in items(config, &path, "options") {
        if text(option, "name").is_empty() {
            errors.push(FieldError::required(path, "must not be empty"));
        }
    }
}

fn searches(config: &Value, path: &str, errors: &mut Errors) {
    let field = child(path, "searches");
    let all = || config.get("searches").cloned().unwrap_or_default();
    let domains: Vec<(String, &str)> = items(config, path, "searches")
        .map(|(path, domain)| (path, domain.as_str().unwrap_or_default()))
        .collect();
    if domains.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.push(FieldError::invalid(field.clone(), all(), detail));
    }
    let bytes: usize = domains.iter().map(|(_, domain)| domain.len() + 1).sum();
    if bytes > SEARCH_BYTES_MAX + 1 {
        let detail = format!(
            "must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the \
             search list"
        );
        errors.push(FieldError::invalid(field, all(), detail));
    }
    for (path, domain) in domains {
        // A single dot is the root, and underscores are allowed in search domains.
        let plain = domain.strip_suffix('.').unwrap_or(domain).replace('_', "");
        if domain != "." {
            push_messages(errors, &path, domain, names::subdomain(&plain));
        }
    }
}

/// Which namespaces of the host can be had together.
fn namespaces(spec: &Value, path: &str, errors: &mut Errors) {
    let flag = |key: &str| spec.get(key).and_then(Value::as_bool);
    if flag("shareProcessNamespace") == Some(true) && flag("hostPID") == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let field = child(path, "securityContext.shareProcessNamespace");
        errors.push(FieldError::invalid(field, json!(true), detail));
    }
    if flag("hostUsers") != Some(false) {
        return;
    }
    for (key, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(key) == Some(true) {
            let detail = "when `hostUsers` is false";
            errors.push(FieldError::forbidden(child(path, name), detail));
        }
    }
}
