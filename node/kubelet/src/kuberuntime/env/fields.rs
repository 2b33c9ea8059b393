//! `fieldRef` and `resourceFieldRef`: what a container may ask of its pod. Pure.

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};
use swiftlet_model::downward::{metadata_field, resource_field};
use swiftlet_proto::pod::plain_container;

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
        Some(name) => {
            let named = plain_container(pod, name);
            named.ok_or_else(|| format!("container {name} not found"))?
        }
    };
    resource_field(container, resource, |resource| facts.allocatable(resource))
}

fn pod_field(pod: &Pod, path: &str, facts: &EnvFacts) -> Result<String, String> {
    let account = || pod.spec.as_ref()?.service_account_name.clone();
    let value = match path {
        "spec.nodeName" => Some(facts.node_name.clone()),
        "spec.serviceAccountName" => account(),
        "status.hostIP" => facts.host_ips.first().cloned(),
        "status.hostIPs" => Some(facts.host_ips.join(",")),
        "status.podIP" => facts.pod_ips.first().cloned(),
        "status.podIPs" => Some(facts.pod_ips.join(",")),
        other => return metadata_field(pod, other),
    };
    Ok(value.unwrap_or_default())
}
