//! Probes and lifecycle hooks.

use serde_json::Value;

use super::names;
use super::{
    Errors, child, items, not_negative, number, one_of, present, push_messages, required, text,
};
use crate::registry::FieldError;

const PROBE_HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK_HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks the probes of a container.
pub(super) fn probes(container: &Value, path: &str, errors: &mut Errors) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = present(container, key) else {
            continue;
        };
        let path = child(path, key);
        handler(probe, &path, PROBE_HANDLERS, errors);
        for key in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            not_negative(probe, &path, key, errors);
        }
        if let Some(grace) = number(probe, "terminationGracePeriodSeconds") {
            let field = child(&path, "terminationGracePeriodSeconds");
            if key == "readinessProbe" {
                errors.push(FieldError::invalid(
                    field,
                    grace.into(),
                    "must not be set for readinessProbes",
                ));
            } else if grace < 1 {
                errors.push(FieldError::invalid(
                    field,
                    grace.into(),
                    "must be greater than 0",
                ));
            }
        }
        let successes = number(probe, "successThreshold").unwrap_or(1);
        if key != "readinessProbe" && successes != 1 {
            let field = child(&path, "successThreshold");
            errors.push(FieldError::invalid(field, successes.into(), "must be 1"));
        }
    }
}

/// Checks the lifecycle hooks of a container.
pub(super) fn lifecycle(container: &Value, path: &str, errors: &mut Errors) {
    let Some(lifecycle) = present(container, "lifecycle") else {
        return;
    };
    let path = child(path, "lifecycle");
    for key in ["postStart", "preStop"] {
        if let Some(hook) = present(lifecycle, key) {
            handler(hook, &child(&path, key), HOOK_HANDLERS, errors);
        }
    }
}

/// Exactly one handler, and a valid one.
fn handler(object: &Value, path: &str, kinds: &[&str], errors: &mut Errors) {
    let mut found = 0;
    for kind in kinds {
        let Some(handler) = present(object, kind) else {
            continue;
        };
        let path = child(path, kind);
        if found > 0 {
            let detail = "may not specify more than 1 handler type";
            errors.push(FieldError::forbidden(path, detail));
            continue;
        }
        found += 1;
        match *kind {
            "exec" => {
                if items(handler, "", "command").next().is_none() {
                    errors.push(FieldError::required(child(&path, "command"), ""));
                }
            }
            "httpGet" => http_get(handler, &path, errors),
            "tcpSocket" => port(handler, &path, errors),
            "grpc" => {
                let number = number(handler, "port").unwrap_or_default();
                for message in names::port_number(number) {
                    errors.push(FieldError::invalid(
                        child(&path, "port"),
                        number.into(),
                        message,
                    ));
                }
            }
            _ => not_negative(handler, &path, "seconds", errors),
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(handler: &Value, path: &str, errors: &mut Errors) {
    required(handler, path, "path", errors);
    port(handler, path, errors);
    one_of(handler, path, "scheme", &["HTTP", "HTTPS"], errors);
    for (path, header) in items(handler, path, "httpHeaders") {
        let name = text(header, "name");
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' \
                          (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.push(FieldError::invalid(
                child(&path, "name"),
                name.into(),
                detail,
            ));
        }
    }
}

/// A port by number or by name.
fn port(handler: &Value, path: &str, errors: &mut Errors) {
    let field = child(path, "port");
    match handler.get("port") {
        Some(Value::String(name)) => push_messages(errors, &field, name, names::port_name(name)),
        port => {
            let number = port.and_then(Value::as_i64).unwrap_or_default();
            for message in names::port_number(number) {
                errors.push(FieldError::invalid(field.clone(), number.into(), message));
            }
        }
    }
}
