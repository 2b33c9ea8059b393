//! What a pod may be told of itself: `fieldRef` and `resourceFieldRef`. Pure.
//!
//! Sources: `pkg/fieldpath` and `pkg/api/v1/resource` of Kubernetes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::quantity::Quantity;

/// A field of the pod's metadata; empty if it has none.
///
/// # Errors
/// Any other path, in the words of Kubernetes.
pub fn metadata_field(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        _ => {
            let parts = path
                .strip_suffix("']")
                .and_then(|path| path.split_once("['"));
            let (map, key) = match parts {
                Some(("metadata.labels", key)) => (&meta.labels, key),
                Some(("metadata.annotations", key)) => (&meta.annotations, key),
                _ => return Err(format!("unsupported fieldPath: {path}")),
            };
            map.as_ref().and_then(|map| map.get(key)).cloned()
        }
    };
    Ok(value.unwrap_or_default())
}

/// A container's request or limit in units of the divisor, rounded up. What is not limited may take
/// what the node has, by `allocatable`: thousandths for CPUs.
///
/// # Errors
/// A resource that is none, or an amount that cannot be read.
pub fn resource_field(
    container: &Container,
    field: &ResourceFieldSelector,
    allocatable: impl Fn(&str) -> i64,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource : {}", field.resource);
    let (list, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let is_served = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if !is_served && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let (written, otherwise) = match list {
        "limits" => (
            resources.and_then(|all| all.limits.as_ref()),
            allocatable(name),
        ),
        "requests" => (resources.and_then(|all| all.requests.as_ref()), 0),
        _ => return Err(unsupported()),
    };
    let is_cpu = name == "cpu";
    let in_unit = |text: &ApiQuantity| {
        let quantity = Quantity::parse(&text.0).map_err(|error| error.to_string())?;
        Ok::<_, String>(if is_cpu {
            quantity.milli_value()
        } else {
            quantity.value()
        })
    };
    let value = written.and_then(|list| list.get(name)).map(in_unit);
    let value = value.transpose()?.unwrap_or(otherwise);
    let by = field.divisor.as_ref().map(in_unit).transpose()?;
    // A divisor of zero, which is the default in stored objects, stands for one.
    let one = if is_cpu { 1000 } else { 1 };
    let by = by.filter(|by| *by > 0).unwrap_or(one);
    Ok((value / by + i64::from(value % by > 0)).to_string())
}

/// `key="value"`, a line each.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines: Vec<_> = lines
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    lines.join("\n")
}

/// As Go's `%q` does it.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            other if u32::from(other) < 0x20 || other == '\x7f' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\x{:02x}", u32::from(other));
            }
            other if other.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_printed_is_escaped_as_go_does() {
        assert_eq!(
            quote("a\n\"\\\u{7}\u{1}\u{85}é"),
            "\"a\\n\\\"\\\\\\a\\x01\\u0085é\""
        );
    }
}
