//! When a container is started again, and what a change of its resources does to it.

use serde_json::Value;

use super::{Errors, child, duplicate, items, not_supported, one_of, present, text};
use crate::registry::{FieldError, FieldErrorKind};

const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const RESIZE_POLICIES: &[&str] = &["NotRequired", "RestartContainer"];
/// Most rules of one container, and most exit codes in one rule (`validateContainerRestartRules`).
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Checks `restartPolicy` and `restartPolicyRules` of a container.
pub(super) fn restart_policy(container: &Value, path: &str, errors: &mut Errors) {
    let policy = text(container, "restartPolicy");
    let field = child(path, "restartPolicy");
    let rules = items(container, "", "restartPolicyRules").count();
    if policy.is_empty() {
        if rules > 0 {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(field, detail));
        }
    } else if !POLICIES.contains(&policy) {
        errors.push(not_supported(field, policy, POLICIES));
    }
    let field = child(path, "restartPolicyRules");
    if rules > RULES_MAX {
        errors.push(too_many(field, RULES_MAX));
        return;
    }
    for (path, rule) in items(container, path, "restartPolicyRules") {
        one_of(rule, &path, "action", &["Restart"], errors);
        let Some(codes) = present(rule, "exitCodes") else {
            let detail = "must be specified";
            errors.push(FieldError::required(child(&path, "exitCodes"), detail));
            continue;
        };
        let path = child(&path, "exitCodes");
        one_of(codes, &path, "operator", &["In", "NotIn"], errors);
        match items(codes, "", "values").count() {
            0 => {
                let detail = "must specify at least one value";
                let field = child(&path, "values");
                errors.push(FieldError::invalid(field, serde_json::json!([]), detail));
            }
            count if count > EXIT_CODES_MAX => {
                errors.push(too_many(child(&path, "values"), EXIT_CODES_MAX));
            }
            _ => (),
        }
    }
}

fn too_many(field: String, most: usize) -> FieldError {
    let detail = format!("must have at most {most} items");
    FieldError::new(FieldErrorKind::TooMany, field, Value::Null, detail)
}

/// Checks `resizePolicy` of a container.
pub(super) fn resize_policy(container: &Value, path: &str, pod_policy: &str, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (path, policy) in items(container, path, "resizePolicy") {
        let name = text(policy, "resourceName");
        if seen.contains(&name) {
            errors.push(duplicate(path.clone(), name));
        }
        seen.push(name);
        match name {
            "cpu" | "memory" => (),
            "" => errors.push(FieldError::required(path.clone(), "")),
            _ => errors.push(not_supported(path.clone(), name, &["cpu", "memory"])),
        }
        let restart = text(policy, "restartPolicy");
        if restart.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !RESIZE_POLICIES.contains(&restart) {
            errors.push(not_supported(path, restart, RESIZE_POLICIES));
        } else if pod_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart.into(), detail));
        }
    }
}
