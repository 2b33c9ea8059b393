//! Probes and lifecycle hooks.

use serde_json::Value;

use super::container::PodContext;
use super::names;
use super::{
    Errors, child, items, not_negative, number, one_of, present, push_messages, required, text,
};
use crate::registry::{FieldError, FieldErrorKind};

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
pub(super) fn lifecycle(
    container: &Value,
    path: &str,
    context: &PodContext<'_>,
    errors: &mut Errors,
) {
    let Some(lifecycle) = present(container, "lifecycle") else {
        return;
    };
    let path = child(path, "lifecycle");
    for key in ["postStart", "preStop"] {
        if let Some(hook) = present(lifecycle, key) {
            let path = child(&path, key);
            handler(hook, &path, HOOK_HANDLERS, errors);
            sleep(hook, &path, context, errors);
        }
    }
    stop_signal(lifecycle, &path, context, errors);
}

/// A hook that sleeps ends before the pod's grace period does.
fn sleep(hook: &Value, path: &str, context: &PodContext<'_>, errors: &mut Errors) {
    let Some(sleep) = present(hook, "sleep") else {
        return;
    };
    let seconds = number(sleep, "seconds").unwrap_or_default();
    let limit = context.grace_period_s.unwrap_or(i64::MAX);
    if seconds < 0 || seconds > limit {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({limit})");
        let field = child(path, "sleep");
        errors.push(FieldError::invalid(field, seconds.into(), detail));
    }
}

/// Signals of Linux by name; those of real time are numbered from both ends.
fn is_signal(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT",
        "KILL", "PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM",
        "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
        "RTMIN", "RTMAX",
    ];
    let Some(name) = name.strip_prefix("SIG") else {
        return false;
    };
    let offset = |prefix: &str, most: u32| {
        let number = name.strip_prefix(prefix).and_then(|text| text.parse().ok());
        number.is_some_and(|number: u32| (1..=most).contains(&number))
    };
    NAMES.contains(&name) || offset("RTMIN+", 15) || offset("RTMAX-", 14)
}

fn stop_signal(lifecycle: &Value, path: &str, context: &PodContext<'_>, errors: &mut Errors) {
    let signal = text(lifecycle, "stopSignal");
    let field = child(path, "stopSignal");
    if signal.is_empty() {
        return;
    }
    match context.os {
        None => {
            let detail = "may not be set for containers with empty `spec.os.name`";
            errors.push(FieldError::forbidden(field, detail));
        }
        Some("linux") if is_signal(signal) => (),
        Some(_) => {
            let detail = "is not a signal of the pod's operating system";
            let kind = FieldErrorKind::NotSupported;
            errors.push(FieldError::new(kind, field, signal.into(), detail));
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
            "exec" if items(handler, "", "command").next().is_none() => {
                errors.push(FieldError::required(child(&path, "command"), ""));
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
            // How long a hook may sleep depends on the pod.
            _ => (),
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
