//! What CRI reports, in the model's words.

use std::collections::HashMap;

use k8s_cri::v1 as cri;
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerExit, ContainerState, ContainerStatus, SandboxState, SandboxStatus, labels,
};

use super::{timestamp, timestamp_if_set};

/// The reason that containerd records when the kernel killed the container for memory.
const OOM_KILLED: &str = "OOMKilled";

/// Kubernetes writes the container's hash in hexadecimal.
const HASH_RADIX: u32 = 16;

/// A sandbox from its status, with addresses.
pub(crate) fn sandbox(status: &cri::PodSandboxStatus) -> SandboxStatus {
    let network = status.network.as_ref();
    let more = network
        .map(|it| it.additional_ips.as_slice())
        .unwrap_or_default();
    let ips = network
        .map(|it| &it.ip)
        .into_iter()
        .chain(more.iter().map(|it| &it.ip))
        .filter(|ip| !ip.is_empty())
        .cloned()
        .collect();
    SandboxStatus {
        id: SandboxId::from(status.id.as_str()),
        pod: pod(status.metadata.as_ref()),
        attempt: status.metadata.as_ref().map_or(0, |it| it.attempt),
        state: sandbox_state(status.state()),
        created_at: timestamp(status.created_at),
        ips,
    }
}

/// A sandbox from the list, without addresses.
pub(crate) fn sandbox_of_list(listed: &cri::PodSandbox) -> SandboxStatus {
    SandboxStatus {
        id: SandboxId::from(listed.id.as_str()),
        pod: pod(listed.metadata.as_ref()),
        attempt: listed.metadata.as_ref().map_or(0, |it| it.attempt),
        state: sandbox_state(listed.state()),
        created_at: timestamp(listed.created_at),
        ips: Vec::new(),
    }
}

/// A container from its status, which does not name the sandbox.
pub(crate) fn container(status: &cri::ContainerStatus, sandbox: SandboxId) -> ContainerStatus {
    let metadata = status.metadata.as_ref();
    let exit = exit(status);
    // containerd takes the time of a start when the call that started the process has returned: a
    // short process has ended before that.
    let ended_at = exit.as_ref().map(|exit| exit.at);
    let started_at = timestamp_if_set(status.started_at);
    let started_at = started_at.map(|start| ended_at.map_or(start, |end| start.min(end)));
    ContainerStatus {
        id: ContainerId::from(status.id.as_str()),
        name: name(&status.labels, metadata),
        sandbox,
        attempt: metadata.map_or(0, |it| it.attempt),
        state: container_state(status.state()),
        created_at: timestamp(status.created_at),
        started_at,
        exit,
        image: status
            .image
            .as_ref()
            .map(|it| it.image.clone())
            .unwrap_or_default(),
        image_id: status.image_ref.clone(),
        spec_hash: spec_hash(&status.annotations),
    }
}

/// A container from the list, without times and exit code.
pub(crate) fn container_of_list(listed: &cri::Container) -> ContainerStatus {
    let metadata = listed.metadata.as_ref();
    ContainerStatus {
        id: ContainerId::from(listed.id.as_str()),
        name: name(&listed.labels, metadata),
        sandbox: SandboxId::from(listed.pod_sandbox_id.as_str()),
        attempt: metadata.map_or(0, |it| it.attempt),
        state: container_state(listed.state()),
        created_at: timestamp(listed.created_at),
        started_at: None,
        exit: None,
        image: listed
            .image
            .as_ref()
            .map(|it| it.image.clone())
            .unwrap_or_default(),
        image_id: listed.image_ref.clone(),
        spec_hash: spec_hash(&listed.annotations),
    }
}

/// The pod of a container, which only its labels tell.
pub(crate) fn pod_of_labels(of: &HashMap<String, String>) -> PodKey {
    let label = |key: &str| of.get(key).cloned().unwrap_or_default();
    PodKey {
        namespace: label(labels::POD_NAMESPACE),
        name: label(labels::POD_NAME),
        uid: PodUid::from(label(labels::POD_UID)),
    }
}

fn pod(metadata: Option<&cri::PodSandboxMetadata>) -> PodKey {
    let metadata = metadata.cloned().unwrap_or_default();
    PodKey {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: PodUid::from(metadata.uid),
    }
}

fn name(of: &HashMap<String, String>, metadata: Option<&cri::ContainerMetadata>) -> ContainerName {
    let label = of.get(labels::CONTAINER_NAME).map(String::as_str);
    let name = label.or_else(|| metadata.map(|it| it.name.as_str()));
    ContainerName::from(name.unwrap_or_default())
}

fn exit(status: &cri::ContainerStatus) -> Option<ContainerExit> {
    (status.state() == cri::ContainerState::ContainerExited).then(|| ContainerExit {
        code: status.exit_code,
        oom_killed: status.reason == OOM_KILLED,
        at: timestamp(status.finished_at),
        reason: status.reason.clone(),
        message: status.message.clone(),
    })
}

fn spec_hash(annotations: &HashMap<String, String>) -> Option<u64> {
    let text = annotations.get(labels::CONTAINER_HASH)?;
    u64::from_str_radix(text, HASH_RADIX).ok()
}

fn sandbox_state(state: cri::PodSandboxState) -> SandboxState {
    match state {
        cri::PodSandboxState::SandboxReady => SandboxState::Ready,
        cri::PodSandboxState::SandboxNotready => SandboxState::NotReady,
    }
}

fn container_state(state: cri::ContainerState) -> ContainerState {
    match state {
        cri::ContainerState::ContainerCreated => ContainerState::Created,
        cri::ContainerState::ContainerRunning => ContainerState::Running,
        cri::ContainerState::ContainerExited => ContainerState::Exited,
        cri::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited() -> cri::ContainerStatus {
        cri::ContainerStatus {
            id: "c1".into(),
            metadata: Some(cri::ContainerMetadata {
                name: "main".into(),
                attempt: 4,
            }),
            state: cri::ContainerState::ContainerExited.into(),
            created_at: 1,
            started_at: 2,
            finished_at: 3,
            exit_code: 137,
            reason: OOM_KILLED.into(),
            annotations: HashMap::from([(labels::CONTAINER_HASH.into(), "ff".into())]),
            ..cri::ContainerStatus::default()
        }
    }

    #[test]
    fn an_exit_tells_code_reason_and_time() {
        let status = container(&exited(), SandboxId::from("s1"));
        let exit = status.exit.unwrap();
        assert_eq!((exit.code, exit.oom_killed), (137, true));
        assert_eq!(exit.at.as_nanosecond(), 3);
        assert_eq!(status.started_at.unwrap().as_nanosecond(), 2);
        assert_eq!((status.attempt, status.spec_hash), (4, Some(0xff)));
    }

    #[test]
    fn no_container_is_started_after_its_end() {
        let late = cri::ContainerStatus {
            started_at: 5,
            ..exited()
        };
        let status = container(&late, SandboxId::from("s1"));
        assert_eq!(status.started_at, status.exit.map(|exit| exit.at));
    }

    #[test]
    fn a_running_container_has_no_exit() {
        let running = cri::ContainerStatus {
            state: cri::ContainerState::ContainerRunning.into(),
            ..exited()
        };
        assert_eq!(container(&running, SandboxId::from("s1")).exit, None);
    }

    #[test]
    fn the_primary_address_comes_first_and_the_hosts_network_has_none() {
        let mut status = cri::PodSandboxStatus {
            network: Some(cri::PodSandboxNetworkStatus {
                ip: "10.1.0.2".into(),
                additional_ips: vec![cri::PodIp {
                    ip: "fd00::2".into(),
                }],
            }),
            ..cri::PodSandboxStatus::default()
        };
        assert_eq!(sandbox(&status).ips, ["10.1.0.2", "fd00::2"]);
        status.network = Some(cri::PodSandboxNetworkStatus::default());
        assert!(sandbox(&status).ips.is_empty());
    }
}
