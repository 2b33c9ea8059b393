//! What a pod is told of itself by files. Pure.
//!
//! Sources: `pkg/volume/downwardapi`, `pkg/fieldpath` and `pkg/api/v1/resource` of Kubernetes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::quantity::Quantity;

use crate::plan::Amounts;

/// The content of one file.
pub(crate) fn content(
    file: &DownwardAPIVolumeFile,
    pod: &Pod,
    amounts: &Amounts,
) -> Result<String, String> {
    if let Some(field) = &file.field_ref {
        return of_field(&field.field_path, pod);
    }
    match &file.resource_field_ref {
        Some(resource) => of_resource(resource, pod, amounts),
        None => Err("neither fieldRef nor resourceFieldRef".to_owned()),
    }
}

fn of_field(path: &str, pod: &Pod) -> Result<String, String> {
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

fn of_resource(
    field: &ResourceFieldSelector,
    pod: &Pod,
    amounts: &Amounts,
) -> Result<String, String> {
    let name = field.container_name.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref().ok_or("the pod has no spec")?;
    let init = spec.init_containers.iter().flatten();
    let mut all = spec.containers.iter().chain(init);
    let container = all
        .find(|one| one.name == name)
        .ok_or_else(|| format!("container {name} not found"))?;
    let unsupported = || format!("unsupported container resource : {}", field.resource);
    let (list, resource) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let by = divisor(field)?;
    let node = match resource {
        "cpu" => amounts.cpu_milli,
        "memory" => amounts.memory_bytes,
        "ephemeral-storage" => amounts.ephemeral_storage_bytes,
        pages if pages.starts_with("hugepages-") => 0,
        _ => return Err(unsupported()),
    };
    let is_cpu = resource == "cpu";
    let value = match list {
        // What is not limited may take what the node has.
        "limits" => amount(limits(container), resource, is_cpu)?.unwrap_or(node),
        "requests" => amount(requests(container), resource, is_cpu)?.unwrap_or(0),
        _ => return Err(unsupported()),
    };
    let (by, one) = if is_cpu {
        (by.map(Quantity::milli_value), 1000)
    } else {
        (by.map(Quantity::value), 1)
    };
    // A divisor of zero stands for one.
    let by = by.filter(|by| *by > 0).unwrap_or(one);
    Ok((value / by + i64::from(value % by > 0)).to_string())
}

type Amount = Option<BTreeMap<String, ApiQuantity>>;

fn limits(container: &Container) -> Option<&Amount> {
    container.resources.as_ref().map(|it| &it.limits)
}

fn requests(container: &Container) -> Option<&Amount> {
    container.resources.as_ref().map(|it| &it.requests)
}

/// In thousandths for CPUs.
fn amount(list: Option<&Amount>, resource: &str, is_cpu: bool) -> Result<Option<i64>, String> {
    let Some(quantity) = list.and_then(|it| it.as_ref()?.get(resource)) else {
        return Ok(None);
    };
    let quantity = Quantity::parse(&quantity.0).map_err(|error| error.to_string())?;
    Ok(Some(if is_cpu {
        quantity.milli_value()
    } else {
        quantity.value()
    }))
}

fn divisor(field: &ResourceFieldSelector) -> Result<Option<Quantity>, String> {
    let divisor = field.divisor.as_ref().map(|it| Quantity::parse(&it.0));
    divisor.transpose().map_err(|error| error.to_string())
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
