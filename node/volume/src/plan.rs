//! What a pod wants of its volumes. Pure.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, KeyToPath, Pod,
    SecretVolumeSource, Volume,
};
use swiftlet_model::control_plane::{ObjectRef, RefKind};
use swiftlet_model::volumes::VolumeError;
use swiftlet_proto::quantity::Quantity;

use crate::failed;

/// Mode of the files of a ConfigMap or Secret where nothing is said. Source: the API's defaults.
const FILE_MODE_DEFAULT: i32 = 0o644;

/// Bits that a mode may have: the API refuses others.
const MODE_BITS: u32 = 0o777;

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// `spec.volumes[].name`.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Kind,
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A folder on the node's disk, or a tmpfs.
    EmptyDir {
        memory: bool,
        size_bytes: Option<u64>,
    },
    /// A path of the node.
    HostPath { path: String, kind: String },
    /// Files of a ConfigMap or Secret.
    Files(Files),
}

/// Which files of an object, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Files {
    /// The object.
    pub(crate) object: ObjectRef,
    /// The object, or a key in `items`, may be missing.
    pub(crate) optional: bool,
    /// Mode of files without one of their own.
    pub(crate) mode: u32,
    /// Keys with their paths; `None` means all keys, each under its own name.
    pub(crate) items: Option<Vec<Item>>,
}

/// One key and where its file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) path: String,
    pub(crate) mode: Option<u32>,
}

/// The pod's volumes in order.
pub(crate) fn volumes(pod: &Pod) -> Result<Vec<Plan>, VolumeError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.map(|volume| plan(namespace, volume)).collect()
}

/// `spec.securityContext.fsGroup`.
pub(crate) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// Names of all containers: each has a folder for its logs.
pub(crate) fn container_names(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let main = spec.containers.iter().map(|it| &it.name);
    let init = spec.init_containers.iter().flatten().map(|it| &it.name);
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .map(|it| &it.name);
    main.chain(init).chain(ephemeral).cloned().collect()
}

fn plan(namespace: &str, volume: &Volume) -> Result<Plan, VolumeError> {
    let name = volume.name.clone();
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(failed(&name, &"not a name of a volume"));
    }
    let kind = if let Some(source) = &volume.empty_dir {
        empty_dir(&name, source)?
    } else if let Some(source) = &volume.host_path {
        host_path(source)
    } else if let Some(source) = &volume.config_map {
        config_map(namespace, source)
    } else if let Some(source) = &volume.secret {
        secret(namespace, source)
    } else {
        return Err(VolumeError::Unsupported {
            volume: name,
            kind: kind_of(volume),
        });
    };
    Ok(Plan { name, kind })
}

fn empty_dir(name: &str, source: &EmptyDirVolumeSource) -> Result<Kind, VolumeError> {
    let memory = match source.medium.as_deref().unwrap_or_default() {
        "" => false,
        "Memory" => true,
        other => {
            let kind = format!("emptyDir of medium {other}");
            return Err(VolumeError::Unsupported {
                volume: name.to_owned(),
                kind,
            });
        }
    };
    let size = source
        .size_limit
        .as_ref()
        .map(|size| Quantity::parse(&size.0))
        .transpose();
    let size = size.map_err(|error| failed(name, &error))?;
    // Zero means no limit, as in kubelet.
    let size_bytes = size
        .and_then(|size| u64::try_from(size.value()).ok())
        .filter(|&it| it > 0);
    Ok(Kind::EmptyDir { memory, size_bytes })
}

fn host_path(source: &HostPathVolumeSource) -> Kind {
    let kind = source.type_.clone().unwrap_or_default();
    Kind::HostPath {
        path: source.path.clone(),
        kind,
    }
}

fn config_map(namespace: &str, source: &ConfigMapVolumeSource) -> Kind {
    files(
        ObjectRef {
            kind: RefKind::ConfigMap,
            namespace: namespace.to_owned(),
            name: source.name.clone(),
        },
        source.optional,
        source.default_mode,
        source.items.as_deref(),
    )
}

fn secret(namespace: &str, source: &SecretVolumeSource) -> Kind {
    files(
        ObjectRef {
            kind: RefKind::Secret,
            namespace: namespace.to_owned(),
            name: source.secret_name.clone().unwrap_or_default(),
        },
        source.optional,
        source.default_mode,
        source.items.as_deref(),
    )
}

fn files(
    object: ObjectRef,
    optional: Option<bool>,
    mode: Option<i32>,
    items: Option<&[KeyToPath]>,
) -> Kind {
    let item = |it: &KeyToPath| Item {
        key: it.key.clone(),
        path: it.path.clone(),
        mode: it.mode.map(mode_bits),
    };
    Kind::Files(Files {
        object,
        optional: optional.unwrap_or_default(),
        mode: mode_bits(mode.unwrap_or(FILE_MODE_DEFAULT)),
        items: items
            .filter(|items| !items.is_empty())
            .map(|it| it.iter().map(item).collect()),
    })
}

fn mode_bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0) & MODE_BITS
}

/// The API's name of a kind that is not served.
fn kind_of(volume: &Volume) -> String {
    let kinds = [
        (volume.projected.is_some(), "projected"),
        (volume.downward_api.is_some(), "downwardAPI"),
        (
            volume.persistent_volume_claim.is_some(),
            "persistentVolumeClaim",
        ),
        (volume.csi.is_some(), "csi"),
        (volume.ephemeral.is_some(), "ephemeral"),
        (volume.image.is_some(), "image"),
        (volume.nfs.is_some(), "nfs"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.fc.is_some(), "fc"),
    ];
    let kind = kinds
        .iter()
        .find(|(is_set, _)| *is_set)
        .map(|(_, kind)| *kind);
    kind.unwrap_or("such").to_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ProjectedVolumeSource;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    use super::*;

    fn volume(name: &str) -> Volume {
        Volume {
            name: name.into(),
            ..Volume::default()
        }
    }

    #[test]
    fn a_kind_that_is_not_served_is_named() {
        let mut projected = volume("token");
        projected.projected = Some(ProjectedVolumeSource::default());
        let error = plan("default", &projected).unwrap_err();
        let expected = "volume \"token\": projected volumes are not served by this node";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_volume_in_memory_has_its_limit_in_bytes() {
        let mut cache = volume("cache");
        cache.empty_dir = Some(EmptyDirVolumeSource {
            medium: Some("Memory".into()),
            size_limit: Some(ApiQuantity("64Mi".into())),
        });
        let kind = plan("default", &cache).unwrap().kind;
        assert_eq!(
            kind,
            Kind::EmptyDir {
                memory: true,
                size_bytes: Some(64 << 20)
            }
        );
    }

    #[test]
    fn a_name_never_leads_out_of_the_pods_folder() {
        for name in ["", "..", "../x", "a/b"] {
            let mut bad = volume(name);
            bad.empty_dir = Some(EmptyDirVolumeSource::default());
            assert!(plan("default", &bad).is_err(), "{name}");
        }
    }
}
