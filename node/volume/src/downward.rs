//! What a pod is told of itself by files. Pure.
//!
//! Source: `pkg/volume/downwardapi` of Kubernetes.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod};
use swiftlet_model::downward::{metadata_field, resource_field};
use swiftlet_proto::pod::plain_container;

use crate::plan::Amounts;

/// The content of one file.
pub(crate) fn content(
    file: &DownwardAPIVolumeFile,
    pod: &Pod,
    amounts: &Amounts,
) -> Result<String, String> {
    if let Some(field) = &file.field_ref {
        return metadata_field(pod, &field.field_path);
    }
    let Some(resource) = &file.resource_field_ref else {
        return Err("neither fieldRef nor resourceFieldRef".to_owned());
    };
    let name = resource.container_name.as_deref().unwrap_or_default();
    let container = plain_container(pod, name);
    let container = container.ok_or_else(|| format!("container {name} not found"))?;
    resource_field(container, resource, |resource| amounts.of(resource))
}
