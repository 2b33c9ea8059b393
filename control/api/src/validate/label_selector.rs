//! Label selectors inside objects (`matchLabels`, `matchExpressions`).

use serde_json::Value;

use super::metadata::labels;
use super::names;
use super::{Errors, child, items, map, not_supported, push_messages, text};
use crate::registry::FieldError;

/// Checks a label selector.
pub(super) fn label_selector(selector: &Value, path: &str, errors: &mut Errors) {
    labels(selector, path, "matchLabels", errors);
    for (path, rule) in items(selector, path, "matchExpressions") {
        let key = text(rule, "key");
        push_messages(
            errors,
            &child(&path, "key"),
            key,
            names::qualified_name(key),
        );
        let values = items(rule, &path, "values").count();
        match text(rule, "operator") {
            "In" | "NotIn" if values == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(child(&path, "values"), detail));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(child(&path, "values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => (),
            other => {
                let supported = &["In", "NotIn", "Exists", "DoesNotExist"];
                errors.push(not_supported(child(&path, "operator"), other, supported));
            }
        }
    }
}

/// Whether a selector says nothing.
pub(super) fn is_empty(selector: &Value) -> bool {
    map(selector, "matchLabels").next().is_none()
        && items(selector, "", "matchExpressions").next().is_none()
}

/// Whether `labels` (an object, or null) satisfy a selector.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let all_equal = map(selector, "matchLabels").all(|(key, value)| label(key) == value.as_str());
    let satisfied = |rule: &Value| {
        let found = label(text(rule, "key"));
        let listed = || {
            items(rule, "", "values").any(|(_, value)| value.as_str() == found && found.is_some())
        };
        match text(rule, "operator") {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    };
    all_equal && items(selector, "", "matchExpressions").all(|(_, rule)| satisfied(rule))
}
