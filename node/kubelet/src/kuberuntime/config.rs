//! What the runtime is told: configuration of sandboxes and containers. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SecurityContext};
use swiftlet_model::ids::{ContainerName, PodKey};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerSecurity, DnsConfig, Mount, MountPropagation, NamespaceOptions,
    PodSecurity, SandboxConfig, labels,
};

use crate::cgroups;
use crate::kuberuntime::env::{self, EnvError, EnvFacts, Referenced};
use crate::kuberuntime::expand::expand;
use crate::kuberuntime::hash::spec_hash;

/// Longest host name that Linux takes, in bytes.
const HOSTNAME_BYTES_MAX: usize = 63;
/// Grace period of a pod that names none, in seconds.
pub const GRACE_PERIOD_S_DEFAULT: i64 = 30;

/// Why a container cannot be configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A mount of a volume that the pod does not have.
    #[error("no volume named \"{0}\" is mounted")]
    NoVolume(String),
    /// `runAsNonRoot` with user 0.
    #[error("container's runAsUser breaks non-root policy")]
    Root,
}

/// All that goes into a container's configuration beside the pod.
#[derive(Debug)]
pub struct ContainerInputs<'a> {
    /// The attempt.
    pub attempt: u32,
    /// The image's id in the runtime, or its name.
    pub image: &'a str,
    /// Where the volumes lie.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// ConfigMaps and Secrets of the environment.
    pub referenced: &'a Referenced,
    /// What the environment may ask for.
    pub env: &'a EnvFacts,
    /// For `oom_score_adj`.
    pub memory_capacity_bytes: i64,
}

/// The sandbox of a pod.
pub fn sandbox_config(pod: &Pod, attempt: u32, log_root: &Path, cgroup: &str) -> SandboxConfig {
    let key = PodKey::of(pod);
    let spec = pod.spec.clone().unwrap_or_default();
    let folder = format!("{}_{}_{}", key.namespace, key.name, key.uid);
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(&key));
    SandboxConfig {
        attempt,
        hostname: hostname(&spec, &key.name),
        log_directory: log_root.join(folder),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: cgroup.to_owned(),
        dns: dns(&spec),
        port_mappings: Vec::new(),
        namespaces: namespaces(&spec),
        sysctls: sysctls(&spec),
        runtime_handler: String::new(),
        security: pod_security(&spec),
        pod: key,
    }
}

/// A container of a pod.
pub fn container_config(
    pod: &Pod,
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<ContainerConfig, ConfigError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let (env, variables) = env::environment(pod, container, inputs.referenced, inputs.env)?;
    let expand_all = |texts: &Option<Vec<String>>| {
        texts
            .iter()
            .flatten()
            .map(|text| expand(text, &variables))
            .collect()
    };
    let attempt = inputs.attempt;
    Ok(ContainerConfig {
        name: ContainerName::from(container.name.as_str()),
        attempt,
        image: inputs.image.to_owned(),
        command: expand_all(&container.command),
        args: expand_all(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        env,
        mounts: mounts(container, inputs.volumes)?,
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        resources: cgroups::container_resources(pod, container, inputs.memory_capacity_bytes),
        security: security(&spec, container)?,
    })
}

/// `spec.terminationGracePeriodSeconds`.
pub fn grace_period_s(pod: &Pod) -> i64 {
    let written = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    written.unwrap_or(GRACE_PERIOD_S_DEFAULT).max(0)
}

/// Whether the pod lives in the node's network.
pub fn host_network(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.host_network)
        .unwrap_or_default()
}

fn pod_labels(key: &PodKey) -> [(String, String); 3] {
    [
        (labels::POD_NAME.to_owned(), key.name.clone()),
        (labels::POD_NAMESPACE.to_owned(), key.namespace.clone()),
        (labels::POD_UID.to_owned(), key.uid.to_string()),
    ]
}

fn container_labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut all: BTreeMap<_, _> = pod_labels(&PodKey::of(pod)).into();
    all.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    all
}

fn container_annotations(
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> BTreeMap<String, String> {
    [
        // Hexadecimal, as Kubernetes writes it.
        (
            labels::CONTAINER_HASH,
            format!("{:x}", spec_hash(container)),
        ),
        (labels::CONTAINER_RESTART_COUNT, attempt.to_string()),
        (
            labels::POD_TERMINATION_GRACE_PERIOD,
            grace_period_s(pod).to_string(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn hostname(spec: &PodSpec, name: &str) -> String {
    let written = spec
        .hostname
        .as_deref()
        .filter(|hostname| !hostname.is_empty());
    let mut hostname = written.unwrap_or(name).to_owned();
    // Names in the API are ASCII; what ends with a mark after the cut is no host name.
    hostname.truncate(HOSTNAME_BYTES_MAX);
    hostname.trim_end_matches(['-', '.']).to_owned()
}

fn dns(spec: &PodSpec) -> Option<DnsConfig> {
    let config = spec.dns_config.as_ref()?;
    let option = |option: &k8s_openapi::api::core::v1::PodDNSConfigOption| {
        let name = option.name.as_deref().unwrap_or_default();
        match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.to_owned(),
        }
    };
    Some(DnsConfig {
        servers: config.nameservers.clone().unwrap_or_default(),
        searches: config.searches.clone().unwrap_or_default(),
        options: config.options.iter().flatten().map(option).collect(),
    })
}

fn namespaces(spec: &PodSpec) -> NamespaceOptions {
    NamespaceOptions {
        host_network: spec.host_network.unwrap_or_default(),
        host_pid: spec.host_pid.unwrap_or_default(),
        host_ipc: spec.host_ipc.unwrap_or_default(),
        share_process_namespace: spec.share_process_namespace.unwrap_or_default(),
    }
}

fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let all = spec
        .security_context
        .iter()
        .flat_map(|context| context.sysctls.iter().flatten());
    all.map(|one| (one.name.replace('/', "."), one.value.clone()))
        .collect()
}

fn supplemental_groups(spec: &PodSpec) -> Vec<i64> {
    let Some(context) = &spec.security_context else {
        return Vec::new();
    };
    let mut groups = context.supplemental_groups.clone().unwrap_or_default();
    groups.extend(context.fs_group);
    groups
}

fn pod_security(spec: &PodSpec) -> PodSecurity {
    let context = spec.security_context.clone().unwrap_or_default();
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    PodSecurity {
        run_as_user: context.run_as_user,
        run_as_group: context.run_as_group,
        supplemental_groups: supplemental_groups(spec),
        privileged: all
            .filter_map(|one| one.security_context.as_ref())
            .any(is_privileged),
    }
}

fn is_privileged(context: &SecurityContext) -> bool {
    context.privileged.unwrap_or_default()
}

fn security(spec: &PodSpec, container: &Container) -> Result<ContainerSecurity, ConfigError> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let run_as_user = own.run_as_user.or(pod.run_as_user);
    if own.run_as_non_root.or(pod.run_as_non_root) == Some(true) && run_as_user == Some(0) {
        return Err(ConfigError::Root);
    }
    let capabilities = own.capabilities.clone().unwrap_or_default();
    Ok(ContainerSecurity {
        privileged: is_privileged(&own),
        read_only_rootfs: own.read_only_root_filesystem.unwrap_or_default(),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        run_as_user,
        run_as_group: own.run_as_group.or(pod.run_as_group),
        supplemental_groups: supplemental_groups(spec),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        namespaces: namespaces(spec),
        seccomp_runtime_default: own
            .seccomp_profile
            .or(pod.seccomp_profile)
            .is_some_and(|profile| profile.type_ == "RuntimeDefault"),
    })
}

fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Mount>, ConfigError> {
    let mut all = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let path = volumes
            .get(&mount.name)
            .ok_or_else(|| ConfigError::NoVolume(mount.name.clone()))?;
        all.push(Mount {
            host_path: path.clone(),
            container_path: mount.mount_path.clone(),
            read_only: mount.read_only.unwrap_or_default(),
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
