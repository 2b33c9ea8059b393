//! Containers, images and selector: the wide columns of kinds with a pod template.

use serde_json::Value;

use super::column::Column;
use crate::strategy::{list_at, text_at};

pub(super) const CONTAINERS: Column =
    Column::text("Containers", "Names of each container in the template.").wide();
pub(super) const IMAGES: Column = Column::text(
    "Images",
    "Images referenced by each container in the template.",
)
.wide();
pub(super) const SELECTOR: Column =
    Column::text("Selector", "The label selector of the pods.").wide();

/// The three cells.
pub(super) fn cells(object: &Value) -> [Value; 3] {
    let containers = list_at(object, "/spec/template/spec/containers");
    let joined = |pointer: &str| -> Value {
        let texts: Vec<&str> = containers
            .iter()
            .map(|item| text_at(item, pointer))
            .collect();
        texts.join(",").into()
    };
    [joined("/name"), joined("/image"), selector(object).into()]
}

/// `a=b,c in (d,e)`.
fn selector(object: &Value) -> String {
    let labels = object
        .pointer("/spec/selector/matchLabels")
        .and_then(Value::as_object);
    let mut terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for rule in list_at(object, "/spec/selector/matchExpressions") {
        let key = text_at(rule, "/key");
        let mut values: Vec<&str> = list_at(rule, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match text_at(rule, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort_unstable();
    if terms.is_empty() {
        "<none>".into()
    } else {
        terms.join(",")
    }
}
