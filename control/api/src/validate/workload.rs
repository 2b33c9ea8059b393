//! Deployments and ReplicaSets.

use serde_json::Value;

use super::label_selector::{is_empty, label_selector, matches};
use super::metadata::{Scope, annotations, labels, metadata, object_update};
use super::pod::pod_spec;
use super::{Errors, child, immutable, names, not_negative, number, one_of, present, text};
use crate::registry::FieldError;
use crate::registry::FieldErrorKind::NotSupported;

/// Checks a Deployment.
pub fn deployment(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    common(spec, "deployment", &mut errors);
    not_negative(spec, "spec", "revisionHistoryLimit", &mut errors);
    strategy(spec, &mut errors);
    if let Some(deadline) = number(spec, "progressDeadlineSeconds") {
        not_negative(spec, "spec", "progressDeadlineSeconds", &mut errors);
        if deadline <= number(spec, "minReadySeconds").unwrap_or_default() {
            let detail = "must be greater than minReadySeconds";
            let field = "spec.progressDeadlineSeconds";
            errors.push(FieldError::invalid(field, deadline.into(), detail));
        }
    }
    errors
}

/// Checks a ReplicaSet.
pub fn replica_set(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let null = Value::Null;
    common(
        object.get("spec").unwrap_or(&null),
        "replicaset",
        &mut errors,
    );
    errors
}

/// Checks the change of a Deployment or ReplicaSet.
pub fn workload_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    immutable(new, old, "/spec/selector", "spec.selector", &mut errors);
    errors
}

fn common(spec: &Value, word: &str, errors: &mut Errors) {
    not_negative(spec, "spec", "replicas", errors);
    not_negative(spec, "spec", "minReadySeconds", errors);
    match present(spec, "selector") {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            label_selector(selector, "spec.selector", errors);
            if is_empty(selector) {
                let detail = format!("empty selector is invalid for {word}");
                errors.push(FieldError::invalid(
                    "spec.selector",
                    selector.clone(),
                    detail,
                ));
            }
        }
    }
    template(spec, errors);
}

fn template(spec: &Value, errors: &mut Errors) {
    let null = Value::Null;
    let template = spec.get("template").unwrap_or(&null);
    let metadata = template.get("metadata").unwrap_or(&null);
    let path = "spec.template.metadata";
    labels(metadata, path, "labels", errors);
    annotations(metadata, path, errors);
    let found = metadata.get("labels").unwrap_or(&null);
    if let Some(selector) = present(spec, "selector")
        && !is_empty(selector)
        && !matches(selector, found)
    {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(
            child(path, "labels"),
            found.clone(),
            detail,
        ));
    }
    let pod = template.get("spec").unwrap_or(&null);
    let path = "spec.template.spec";
    pod_spec(pod, path, errors);
    let policy = text(pod, "restartPolicy");
    if ["OnFailure", "Never"].contains(&policy) {
        let field = child(path, "restartPolicy");
        let detail = "supported values: \"Always\"";
        errors.push(FieldError::new(NotSupported, field, policy.into(), detail));
    }
    if present(pod, "activeDeadlineSeconds").is_some() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(
            child(path, "activeDeadlineSeconds"),
            detail,
        ));
    }
}

fn strategy(spec: &Value, errors: &mut Errors) {
    let null = Value::Null;
    let strategy = spec.get("strategy").unwrap_or(&null);
    one_of(
        strategy,
        "spec.strategy",
        "type",
        &["Recreate", "RollingUpdate"],
        errors,
    );
    let path = "spec.strategy.rollingUpdate";
    let rolling = present(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(path, detail));
        }
        ("RollingUpdate", None) => {
            let detail = "this should be defaulted and never be nil";
            errors.push(FieldError::required(path, detail));
        }
        ("RollingUpdate", Some(rolling)) => {
            let unavailable = share(rolling, path, "maxUnavailable", errors);
            let surge = share(rolling, path, "maxSurge", errors);
            let field = child(path, "maxUnavailable");
            if unavailable == Some(0) && surge == Some(0) {
                let value = rolling.get("maxUnavailable").cloned().unwrap_or_default();
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(field, value, detail));
            } else if unavailable.is_some_and(|share| share > 100)
                && rolling["maxUnavailable"].is_string()
            {
                let value = rolling["maxUnavailable"].clone();
                let detail = "must not be greater than 100%";
                errors.push(FieldError::invalid(field, value, detail));
            }
        }
        _ => (),
    }
}

/// A number, or the number of a percentage; `None` where it is neither.
fn share(rolling: &Value, path: &str, key: &str, errors: &mut Errors) -> Option<i64> {
    not_negative(rolling, path, key, errors);
    match rolling.get(key) {
        Some(Value::String(text)) => {
            let number = text.strip_suffix('%').filter(|digits| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            });
            let number = number.and_then(|digits| digits.parse().ok());
            if number.is_none() {
                let detail = "a valid percent string must be a numeric string followed by an \
                              ending '%' (e.g. '1%',  or '93%', regex used for validation is \
                              '[0-9]+%')";
                let field = child(path, key);
                errors.push(FieldError::invalid(field, text.as_str().into(), detail));
            }
            number
        }
        Some(Value::Number(number)) => number.as_i64(),
        _ => Some(0),
    }
}
