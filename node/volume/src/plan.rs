//! What a pod wants of its volumes. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Pod,
    PodSpec, ResourceRequirements, Volume,
};
use swiftlet_model::control_plane::{ObjectRef, RefKind};
use swiftlet_model::volumes::VolumeError;
use swiftlet_proto::pod::lasting_containers;
use swiftlet_proto::quantity::Quantity;

use crate::failed;
use crate::files::{self, Files};

/// What the node can give to its pods: what stands where a pod names no limit. Zero is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
    /// Bytes.
    pub ephemeral_storage_bytes: i64,
}

impl Amounts {
    /// Of one resource; nothing of one that is not counted.
    pub(crate) fn of(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.cpu_milli,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_storage_bytes,
            _ => 0,
        }
    }
}

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
        medium: Medium,
        size_bytes: Option<u64>,
    },
    /// A path of the node.
    HostPath { path: String, kind: String },
    /// Files that the node writes.
    Files(Files),
    /// What a claim is bound to.
    Claim { claim: ObjectRef, read_only: bool },
}

/// Where an emptyDir lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// In a folder of the node.
    Disk,
    /// In a tmpfs.
    Memory,
    /// In huge pages of this size.
    HugePages(String),
}

/// The pod's volumes in order.
pub(crate) fn volumes(pod: &Pod, amounts: &Amounts) -> Result<Vec<Plan>, VolumeError> {
    let Some(spec) = &pod.spec else {
        return Ok(Vec::new());
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let memory_max = memory_max(spec, amounts);
    let volumes = spec.volumes.iter().flatten();
    volumes
        .map(|volume| plan(namespace, spec, volume, memory_max))
        .collect()
}

/// What a tmpfs of the pod may hold where nothing smaller is said: no more than the pod itself.
/// Source: `calculateEmptyDirMemorySize` (`pkg/volume/emptydir`).
pub(crate) fn memory_max(spec: &PodSpec, amounts: &Amounts) -> Option<u64> {
    let node = u64::try_from(amounts.memory_bytes).ok();
    let limits = [memory_limit(spec), node.filter(|it| *it > 0)];
    limits.into_iter().flatten().min()
}

/// The pod's limit of memory, if it has one: where a container has none, neither has the pod.
fn memory_limit(spec: &PodSpec) -> Option<u64> {
    if let Some(limit) = memory_of(spec.resources.as_ref()) {
        return Some(limit);
    }
    let limit = |container: &Container| memory_of(container.resources.as_ref());
    let main: Option<u64> = lasting_containers(spec).map(limit).sum();
    let first: Option<Vec<u64>> = spec.init_containers.iter().flatten().map(limit).collect();
    Some(main?.max(first?.into_iter().max().unwrap_or_default()))
}

fn memory_of(resources: Option<&ResourceRequirements>) -> Option<u64> {
    let limit = resources?.limits.as_ref()?.get("memory")?;
    let bytes = Quantity::parse(&limit.0).ok()?.value();
    u64::try_from(bytes).ok().filter(|it| *it > 0)
}

/// `spec.securityContext.fsGroup`.
pub(crate) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// Whether the ownership of a volume is left as it is when its root has it already:
/// `fsGroupChangePolicy: OnRootMismatch`.
pub(crate) fn only_on_mismatch(pod: &Pod) -> bool {
    let context = pod
        .spec
        .as_ref()
        .and_then(|it| it.security_context.as_ref());
    let policy = context.and_then(|it| it.fs_group_change_policy.as_deref());
    policy == Some("OnRootMismatch")
}

/// The user of all containers, if they have one in common. Source: `FsUserFrom`
/// (`pkg/volume/util`).
pub(crate) fn fs_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|it| it.run_as_user);
    let user = |container: &Container| {
        let own = container.security_context.as_ref();
        own.and_then(|it| it.run_as_user).or(of_pod)
    };
    let init = spec.init_containers.iter().flatten();
    let users: Option<Vec<i64>> = init.chain(&spec.containers).map(user).collect();
    let users = users?;
    let first = users.first().copied()?;
    let is_common = users.iter().all(|user| *user == first);
    u32::try_from(first).ok().filter(|_| is_common)
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

fn plan(
    namespace: &str,
    spec: &PodSpec,
    volume: &Volume,
    memory_max: Option<u64>,
) -> Result<Plan, VolumeError> {
    let name = volume.name.clone();
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(failed(&name, &"not a name of a volume"));
    }
    let kind = if let Some(source) = &volume.empty_dir {
        empty_dir(&name, spec, source, memory_max)?
    } else if let Some(source) = &volume.host_path {
        host_path(source)
    } else if let Some(source) = &volume.persistent_volume_claim {
        claim(namespace, source)
    } else if let Some(files) = files::of_volume(namespace, volume)? {
        Kind::Files(files)
    } else {
        return Err(VolumeError::Unsupported {
            volume: name,
            kind: kind_of(volume),
        });
    };
    Ok(Plan { name, kind })
}

fn empty_dir(
    name: &str,
    spec: &PodSpec,
    source: &EmptyDirVolumeSource,
    memory_max: Option<u64>,
) -> Result<Kind, VolumeError> {
    let medium = match source.medium.as_deref().unwrap_or_default() {
        "" => Medium::Disk,
        "Memory" => Medium::Memory,
        other => {
            let Some(size) = other.strip_prefix("HugePages") else {
                let kind = format!("emptyDir of medium {other}");
                return Err(VolumeError::Unsupported {
                    volume: name.to_owned(),
                    kind,
                });
            };
            Medium::HugePages(page_size(name, spec, size)?)
        }
    };
    let size = source
        .size_limit
        .as_ref()
        .map(|size| Quantity::parse(&size.0))
        .transpose();
    let size = size.map_err(|error| failed(name, &error))?;
    // Zero means no limit, as in kubelet.
    let size = size
        .and_then(|size| u64::try_from(size.value()).ok())
        .filter(|&it| it > 0);
    let pod = memory_max.filter(|_| medium == Medium::Memory);
    let size_bytes = size.into_iter().chain(pod).min();
    Ok(Kind::EmptyDir { medium, size_bytes })
}

/// The size of the huge pages: the one that is asked for, or the only one that the pod requests.
/// Source: `getPageSizeMountOption` (`pkg/volume/emptydir`).
fn page_size(name: &str, spec: &PodSpec, wanted: &str) -> Result<String, VolumeError> {
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let requests = containers
        .filter_map(|one| one.resources.as_ref()?.requests.as_ref())
        .flatten();
    let sizes: BTreeSet<&str> = requests
        .filter_map(|(resource, _)| resource.strip_prefix("hugepages-"))
        .collect();
    let wanted = wanted.trim_start_matches('-');
    let mut found = sizes.iter();
    match (found.next(), found.next()) {
        (Some(only), None) if wanted.is_empty() => Ok((*only).to_owned()),
        (Some(_), Some(_)) if wanted.is_empty() => {
            let cause = "medium HugePages can't be used if more than one page size is requested";
            Err(failed(name, &cause))
        }
        _ if sizes.contains(wanted) => Ok(wanted.to_owned()),
        _ => Err(failed(
            name,
            &format!("no huge pages of size \"{wanted}\" are requested by the pod"),
        )),
    }
}

fn host_path(source: &HostPathVolumeSource) -> Kind {
    let kind = source.type_.clone().unwrap_or_default();
    Kind::HostPath {
        path: source.path.clone(),
        kind,
    }
}

fn claim(namespace: &str, source: &PersistentVolumeClaimVolumeSource) -> Kind {
    Kind::Claim {
        claim: ObjectRef {
            kind: RefKind::PersistentVolumeClaim,
            namespace: namespace.to_owned(),
            name: source.claim_name.clone(),
        },
        read_only: source.read_only.unwrap_or_default(),
    }
}

/// The API's name of a kind that is not served: the one field beside the name.
fn kind_of(volume: &Volume) -> String {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    let mut kinds = fields.map(|(field, _)| field.as_str());
    kinds.find(|it| *it != "name").unwrap_or("such").to_owned()
}

#[cfg(test)]
mod tests;
