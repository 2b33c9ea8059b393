//! Where a container's volumes are mounted. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use swiftlet_model::runtime::{Mount, MountPropagation};

use super::ConfigError;
use crate::kuberuntime::hosts::HOSTS_PATH;
use crate::kuberuntime::places::Places;
use crate::volumes::is_read_only;

/// The mounts of the container's volumes and of the node's own files, parents before what lies in
/// them.
pub(super) fn mounts(
    pod: &Pod,
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    places: &Places,
) -> Result<Vec<Mount>, ConfigError> {
    let mut all = own_files(container, places);
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = volumes
            .get(&mount.name)
            .ok_or_else(|| ConfigError::NoVolume(mount.name.clone()))?;
        all.push(Mount {
            host_path: places.sub_paths.get(&index).unwrap_or(path).clone(),
            container_path: mount.mount_path.clone(),
            read_only: mount.read_only.unwrap_or_default() || is_read_only(pod, &mount.name),
            recursive_read_only: recursive_read_only(mount)?,
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => MountPropagation::HostToContainer,
                Some("Bidirectional") => MountPropagation::Bidirectional,
                _ => MountPropagation::None,
            },
        });
    }
    all.sort_by(|left, right| left.container_path.cmp(&right.container_path));
    Ok(all)
}

/// The pod's table of hosts, unless the container mounts one of its own, and the file for its last
/// words (`makeMounts` and `GenerateRunContainerOptions`).
fn own_files(container: &Container, places: &Places) -> Vec<Mount> {
    let mut mounts = container.volume_mounts.iter().flatten();
    let has_hosts = mounts.any(|one| one.mount_path == HOSTS_PATH);
    let hosts = places.hosts.as_ref().filter(|_| !has_hosts);
    let hosts = hosts.map(|path| (path, HOSTS_PATH));
    let termination = container.termination_message_path.as_deref();
    let termination = places.termination.as_ref().zip(termination);
    let own = |(path, container_path): (&PathBuf, &str)| Mount {
        host_path: path.clone(),
        container_path: container_path.to_owned(),
        read_only: false,
        recursive_read_only: false,
        propagation: MountPropagation::None,
    };
    hosts.into_iter().chain(termination).map(own).collect()
}

/// Whether what is mounted below is read-only too. No served runtime can do that yet, so
/// `IfPossible` is a plain read-only mount and `Enabled` an error
/// (`resolveRecursiveReadOnly` of `pkg/kubelet/kubelet_pods.go`).
fn recursive_read_only(mount: &VolumeMount) -> Result<bool, ConfigError> {
    let recursive = |problem| ConfigError::Recursive {
        mount: mount.name.clone(),
        problem,
    };
    let propagation = mount.mount_propagation.as_deref().unwrap_or("None");
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => Ok(false),
        Some(_) if !mount.read_only.unwrap_or_default() => {
            Err(recursive("it is not read-only".to_owned()))
        }
        Some(_) if propagation != "None" => Err(recursive(format!(
            "mountPropagation is set to {propagation:?}"
        ))),
        Some("IfPossible") => Ok(false),
        Some(_) => Err(recursive("it is not supported by the runtime".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str) -> VolumeMount {
        VolumeMount {
            name: "v".into(),
            mount_path: path.into(),
            read_only: Some(true),
            ..VolumeMount::default()
        }
    }

    fn made(mounts_of: Vec<VolumeMount>) -> Result<Vec<Mount>, ConfigError> {
        let container = Container {
            volume_mounts: Some(mounts_of),
            ..Container::default()
        };
        let volumes = [("v".into(), "/host/v".into())].into();
        mounts(&Pod::default(), &container, &volumes, &Places::default())
    }

    #[test]
    fn a_parent_comes_before_what_lies_in_it() {
        let mut shared = mount("/a");
        shared.mount_propagation = Some("Bidirectional".into());
        let all = made(vec![mount("/a/b"), shared]).unwrap();
        let paths: Vec<_> = all.iter().map(|one| one.container_path.as_str()).collect();
        assert_eq!(paths, ["/a", "/a/b"]);
        assert_eq!(all[0].propagation, MountPropagation::Bidirectional);
        assert!(all[1].read_only && all[1].host_path.ends_with("host/v"));
    }

    #[test]
    fn the_nodes_own_files_are_mounted_unless_the_container_has_others() {
        let mut container = Container {
            volume_mounts: Some(vec![mount("/a")]),
            termination_message_path: Some("/dev/termination-log".into()),
            ..Container::default()
        };
        let volumes = [("v".into(), "/host/v".into())].into();
        let places = Places {
            sub_paths: [(0, "/sub/0".into())].into(),
            hosts: Some("/pod/hosts".into()),
            termination: Some("/pod/words".into()),
        };
        let look = |container: &Container| -> Vec<(String, String)> {
            let all = mounts(&Pod::default(), container, &volumes, &places).unwrap();
            let pair = |one: Mount| (one.container_path, one.host_path.display().to_string());
            all.into_iter().map(pair).collect()
        };
        let expected = [
            ("/a", "/sub/0"),
            ("/dev/termination-log", "/pod/words"),
            ("/etc/hosts", "/pod/hosts"),
        ];
        let expected = expected.map(|(path, host)| (path.to_owned(), host.to_owned()));
        assert_eq!(look(&container), expected);
        container.volume_mounts = Some(vec![mount("/etc/hosts")]);
        container.termination_message_path = None;
        assert_eq!(
            look(&container),
            [("/etc/hosts".to_owned(), "/sub/0".to_owned())]
        );
    }

    #[test]
    fn a_mount_of_an_unknown_volume_is_an_error() {
        let mut unknown = mount("/a");
        unknown.name = "other".into();
        assert_eq!(
            made(vec![unknown]),
            Err(ConfigError::NoVolume("other".into()))
        );
    }

    #[test]
    fn read_only_to_the_last_leaf_is_given_or_said_not_to_be() {
        let with = |policy: &str| VolumeMount {
            recursive_read_only: Some(policy.into()),
            ..mount("/a")
        };
        assert!(!made(vec![with("IfPossible")]).unwrap()[0].recursive_read_only);
        assert!(!made(vec![with("Disabled")]).unwrap()[0].recursive_read_only);
        let text = |mount| made(vec![mount]).unwrap_err().to_string();
        assert_eq!(
            text(with("Enabled")),
            "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime"
        );
        let mut writable = with("Enabled");
        writable.read_only = None;
        assert!(text(writable).ends_with("but it is not read-only"));
        let mut shared = with("IfPossible");
        shared.mount_propagation = Some("HostToContainer".into());
        assert!(text(shared).ends_with("mountPropagation is set to \"HostToContainer\""));
    }
}
