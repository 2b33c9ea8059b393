//! `fieldRef` and `resourceFieldRef`: what a container may ask of its pod. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::quantity::Quantity;

use super::EnvFacts;

/// The value that `from` names, or why there is none.
pub(super) fn field(
    pod: &Pod,
    container: &Container,
    from: &EnvVarSource,
    facts: &EnvFacts,
) -> Result<String, String> {
    if let Some(field) = &from.field_ref {
        return pod_field(pod, &field.field_path, facts);
    }
    let Some(resource) = &from.resource_field_ref else {
        return Err("no source that this node serves".to_owned());
    };
    let name = resource.container_name.as_deref();
    let container = match name.filter(|name| !name.is_empty()) {
        None => container,
        Some(name) => named(pod, name).ok_or_else(|| format!("container {name} not found"))?,
    };
    let divisor = resource.divisor.as_ref().map_or("1", |one| one.0.as_str());
    amount(container, &resource.resource, divisor, facts)
}

fn named<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .find(|one| one.name == name)
}

fn pod_field(pod: &Pod, path: &str, facts: &EnvFacts) -> Result<String, String> {
    let meta = &pod.metadata;
    let account = || pod.spec.as_ref()?.service_account_name.clone();
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => Some(facts.node_name.clone()),
        "spec.serviceAccountName" => account(),
        "status.hostIP" => facts.host_ips.first().cloned(),
        "status.hostIPs" => Some(facts.host_ips.join(",")),
        "status.podIP" => facts.pod_ips.first().cloned(),
        "status.podIPs" => Some(facts.pod_ips.join(",")),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        other => return subscript(pod, other),
    };
    Ok(value.unwrap_or_default())
}

/// `metadata.labels['key']` and `metadata.annotations['key']`.
fn subscript(pod: &Pod, path: &str) -> Result<String, String> {
    let parts = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"));
    let (map, key) = match parts {
        Some(("metadata.labels", key)) => (&pod.metadata.labels, key),
        Some(("metadata.annotations", key)) => (&pod.metadata.annotations, key),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    };
    let value = map.as_ref().and_then(|map| map.get(key));
    Ok(value.cloned().unwrap_or_default())
}

/// `key="value"` lines, as the downward API writes maps.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A request or limit in units of the divisor, rounded up. What has no limit has the node's
/// (`ExtractContainerResourceValue` and `MergeContainerResourceLimits` of
/// `pkg/api/v1/resource/helpers.go`).
fn amount(
    container: &Container,
    resource: &str,
    divisor: &str,
    facts: &EnvFacts,
) -> Result<String, String> {
    let resources = container.resources.as_ref();
    let (list, name) = resource.split_once('.').unwrap_or((resource, ""));
    let unsupported = || format!("unsupported container resource : {resource}");
    let (written, fallback) = match list {
        "limits" => (
            resources.and_then(|all| all.limits.as_ref()),
            facts.allocatable(name),
        ),
        "requests" => (resources.and_then(|all| all.requests.as_ref()), 0),
        _ => return Err(unsupported()),
    };
    let served = ["cpu", "memory", "ephemeral-storage"];
    if !served.contains(&name) && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let is_cpu = name == "cpu";
    let in_unit = |text: &ApiQuantity| {
        let quantity = Quantity::parse(&text.0).map_err(|error| error.to_string());
        quantity.map(|one| {
            if is_cpu {
                one.milli_value()
            } else {
                one.value()
            }
        })
    };
    let value = match written.and_then(|list| list.get(name)) {
        Some(text) => in_unit(text)?,
        None => fallback,
    };
    let by = in_unit(&ApiQuantity(divisor.to_owned()))?;
    // The default divisor is 0 in stored objects and means 1.
    let by = if by <= 0 {
        if is_cpu { 1000 } else { 1 }
    } else {
        by
    };
    let rounded_up = value.checked_add(by - 1).map_or(i64::MAX, |sum| sum / by);
    Ok(rounded_up.to_string())
}
