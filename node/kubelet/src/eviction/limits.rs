//! Pods that wrote more to the node's disk than they may. Pure.

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::node_stats::{DiskUse, PodDisk};
use swiftlet_proto::quantity::Quantity;

use crate::eviction::messages;
use crate::resources::{EPHEMERAL_STORAGE, pod_limit_demand, read};

/// Whether the pod has any limit on what it writes: the others are never looked at.
pub(super) fn has_limits(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let volumes = spec
        .into_iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mut sizes = volumes.filter_map(|volume| volume.empty_dir.as_ref()?.size_limit.as_ref());
    sizes.next().is_some() || limits_layers(pod)
}

/// Whether a limit counts what the pod's containers write to their own root.
pub(super) fn limits_layers(pod: &Pod) -> bool {
    pod_limit_demand(pod).contains_key(EPHEMERAL_STORAGE)
}

/// Why the pod must go; `None` if it keeps to its limits. The first reason that Kubernetes would
/// find.
pub(super) fn exceeded(pod: &Pod, disk: &PodDisk) -> Option<String> {
    empty_dirs(pod, disk)
        .or_else(|| whole(pod, disk))
        .or_else(|| containers(pod, disk))
}

fn empty_dirs(pod: &Pod, disk: &PodDisk) -> Option<String> {
    let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    volumes.into_iter().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let most = bytes(Quantity::parse(&limit.0).ok()?.value());
        let usage = disk.volumes.get(&volume.name)?.bytes;
        let over = most > 0 && usage > most;
        over.then(|| messages::empty_dir(&volume.name, &limit.0))
    })
}

/// The sum of the containers' limits covers layers, logs, emptyDirs and the pod's own files
/// together.
fn whole(pod: &Pod, disk: &PodDisk) -> Option<String> {
    let most = bytes(*pod_limit_demand(pod).get(EPHEMERAL_STORAGE)?);
    let mut total = disk.files;
    total += disk.in_layers();
    for one in empty_dirs_of(pod, disk).chain(disk.logs.values()) {
        total += *one;
    }
    (most > 0 && total.bytes > most).then(|| messages::pod_storage(most))
}

fn empty_dirs_of<'a>(pod: &'a Pod, disk: &'a PodDisk) -> impl Iterator<Item = &'a DiskUse> {
    let spec = pod.spec.as_ref();
    let volumes = spec
        .into_iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter(|volume| volume.empty_dir.is_some())
        .filter_map(|volume| disk.volumes.get(&volume.name))
}

fn containers(pod: &Pod, disk: &PodDisk) -> Option<String> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    containers.find_map(|container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        let written = limits.get(EPHEMERAL_STORAGE)?;
        let most = bytes(*read(Some(limits)).get(EPHEMERAL_STORAGE)?);
        let over = most > 0 && container_use(pod, disk, &container.name).bytes > most;
        over.then(|| messages::container_storage(&container.name, &written.0))
    })
}

/// What one container has written: its log, and its own root, which the runtime knows by an id.
pub(super) fn container_use(pod: &Pod, disk: &PodDisk, name: &str) -> DiskUse {
    let mut total = disk.logs.get(name).copied().unwrap_or_default();
    let status = pod.status.as_ref();
    let statuses = status.into_iter().flat_map(|status| {
        let mains = status.container_statuses.iter().flatten();
        mains.chain(status.init_container_statuses.iter().flatten())
    });
    let mine = statuses.filter(|status| status.name == name);
    let ids = mine.filter_map(|status| status.container_id.as_deref()?.split_once("://"));
    for (_, id) in ids {
        total += disk.layers.get(id).copied().unwrap_or_default();
    }
    total
}

fn bytes(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerStatus, EmptyDirVolumeSource, ResourceRequirements, Volume,
    };
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    use super::*;
    use crate::testing::stand::pod;

    fn limited() -> Pod {
        let mut pod = pod("a");
        let spec = pod.spec.as_mut().unwrap();
        spec.volumes = Some(vec![Volume {
            name: "data".into(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(ApiQuantity("1Mi".into())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        }]);
        spec.containers[0].resources = Some(ResourceRequirements {
            limits: Some([(EPHEMERAL_STORAGE.to_owned(), ApiQuantity("2Mi".into()))].into()),
            ..ResourceRequirements::default()
        });
        pod
    }

    fn wrote(volume: u64, log: u64) -> PodDisk {
        let of = |bytes| DiskUse { bytes, inodes: 1 };
        PodDisk {
            volumes: [("data".to_owned(), of(volume))].into(),
            logs: [("main".to_owned(), of(log))].into(),
            ..PodDisk::default()
        }
    }

    #[test]
    fn each_limit_is_named_with_what_it_is() {
        assert!(has_limits(&limited()) && !has_limits(&pod("a")));
        let why = |volume, log| exceeded(&limited(), &wrote(volume, log));
        assert_eq!(why(1 << 20, 1 << 20), None);
        assert_eq!(
            why((1 << 20) + 1, 0).unwrap(),
            "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "
        );
        assert_eq!(
            why(1 << 20, (1 << 20) + 1).unwrap(),
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
        );
        let mut disk = wrote(1 << 20, 1 << 20);
        disk.files.bytes = 1;
        assert!(exceeded(&limited(), &disk).unwrap().contains("total limit"));
        let mut disk = wrote(1 << 20, 1 << 20);
        let layer = |bytes| [("c1".to_owned(), DiskUse { bytes, inodes: 1 })].into();
        disk.layers = layer(1);
        assert!(exceeded(&limited(), &disk).unwrap().contains("total limit"));
        let mut alone = limited();
        let spec = alone.spec.as_mut().unwrap();
        let mut second = spec.containers[0].clone();
        second.name = "second".into();
        spec.containers.push(second);
        assert_eq!(
            exceeded(&alone, &wrote(0, 3 << 20)).unwrap(),
            "Container main exceeded its local ephemeral storage limit \"2Mi\". "
        );
        // What it wrote to its own root counts with its log, once it is known whose it is.
        let mut disk = wrote(0, 1 << 20);
        disk.layers = layer((1 << 20) + 1);
        assert_eq!(exceeded(&alone, &disk), None);
        let status = ContainerStatus {
            name: "main".into(),
            container_id: Some("fakerd://c1".into()),
            ..ContainerStatus::default()
        };
        let statuses = &mut alone.status.get_or_insert_default().container_statuses;
        *statuses = Some(vec![status]);
        assert!(
            exceeded(&alone, &disk)
                .unwrap()
                .starts_with("Container main")
        );
    }
}
