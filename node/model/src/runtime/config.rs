//! Sandboxes and containers as the kubelet wants them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::ids::{ContainerId, ContainerName, PodKey};

/// How a pod's namespaces relate to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `spec.hostPID`.
    pub host_pid: bool,
    /// `spec.hostIPC`.
    pub host_ipc: bool,
    /// `spec.shareProcessNamespace`.
    pub share_process_namespace: bool,
}

/// A sandbox as the kubelet wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxConfig {
    /// The pod.
    pub pod: PodKey,
    /// Grows each time the pod needs another sandbox; the runtime reserves (name, uid, attempt).
    pub attempt: u32,
    /// `spec.hostname` or the pod's name.
    pub hostname: String,
    /// `/var/log/pods/<namespace>_<name>_<uid>`.
    pub log_directory: PathBuf,
    /// Labels of the sandbox: the pod's own and `io.kubernetes.pod.{name,namespace,uid}`.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the sandbox.
    pub annotations: BTreeMap<String, String>,
    /// The pod's cgroup, as `/kubepods/…/pod<uid>`.
    pub cgroup_parent: String,
    /// DNS servers, searches and options; `None` leaves the host's.
    pub dns: Option<DnsConfig>,
    /// Host ports.
    pub port_mappings: Vec<PortMapping>,
    /// Which namespaces are the host's.
    pub namespaces: NamespaceOptions,
    /// `spec.securityContext.sysctls`.
    pub sysctls: BTreeMap<String, String>,
    /// `spec.runtimeClassName`'s handler; empty for the default.
    pub runtime_handler: String,
    /// Pod-level user, groups and privilege.
    pub security: PodSecurity,
}

/// Pod-level security settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSecurity {
    /// `securityContext.runAsUser`.
    pub run_as_user: Option<i64>,
    /// `securityContext.runAsGroup`.
    pub run_as_group: Option<i64>,
    /// `securityContext.supplementalGroups` and `fsGroup`.
    pub supplemental_groups: Vec<i64>,
    /// `securityContext.supplementalGroupsPolicy` is `Strict`: the image's groups do not count.
    pub supplemental_groups_strict: bool,
    /// Some container is privileged.
    pub privileged: bool,
    /// `securityContext.seLinuxOptions`.
    pub selinux: Option<SeLinux>,
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityProfile {
    /// The runtime's own.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// A file on the node for seccomp, a loaded profile's name for AppArmor.
    Localhost(String),
}

/// `seLinuxOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeLinux {
    /// `user`.
    pub user: String,
    /// `role`.
    pub role: String,
    /// `type`.
    pub kind: String,
    /// `level`.
    pub level: String,
}

/// What `/etc/resolv.conf` of the pod says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    /// `nameserver` lines.
    pub servers: Vec<String>,
    /// The `search` line.
    pub searches: Vec<String>,
    /// The `options` line.
    pub options: Vec<String>,
}

/// One host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port in the pod.
    pub container_port: u16,
    /// Port on the node.
    pub host_port: u16,
    /// Address on the node; empty for all.
    pub host_ip: String,
}

/// A container as the kubelet wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerConfig {
    /// The container.
    pub name: ContainerName,
    /// How often it was started before in this pod; the runtime reserves (name, attempt).
    pub attempt: u32,
    /// The image reference or id to run.
    pub image: String,
    /// `command`; empty for the image's entry point.
    pub command: Vec<String>,
    /// `args`.
    pub args: Vec<String>,
    /// `workingDir`; empty for the image's.
    pub working_dir: String,
    /// Environment in order.
    pub env: Vec<(String, String)>,
    /// Mounts, sorted so that a parent comes before what lies in it.
    pub mounts: Vec<Mount>,
    /// Labels, among them `io.kubernetes.container.name`.
    pub labels: BTreeMap<String, String>,
    /// Annotations, among them the container's hash and restart count.
    pub annotations: BTreeMap<String, String>,
    /// `<container>/<attempt>.log` below the sandbox's log directory.
    pub log_path: String,
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// CPU and memory.
    pub resources: LinuxResources,
    /// User, groups, capabilities.
    pub security: ContainerSecurity,
}

/// One mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path on the node.
    pub host_path: PathBuf,
    /// Path in the container.
    pub container_path: String,
    /// `readOnly`.
    pub read_only: bool,
    /// `recursiveReadOnly`: what is mounted below is read-only too.
    pub recursive_read_only: bool,
    /// `mountPropagation`.
    pub propagation: MountPropagation,
}

/// `mountPropagation` of a volume mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountPropagation {
    /// Nothing is shared.
    #[default]
    None,
    /// The container sees the host's later mounts.
    HostToContainer,
    /// Both see each other's.
    Bidirectional,
}

/// cgroup settings of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxResources {
    /// Relative weight, from `requests.cpu`; 2 at the least.
    pub cpu_shares: i64,
    /// Microseconds of CPU per period; 0 for no limit.
    pub cpu_quota_us: i64,
    /// The period in microseconds.
    pub cpu_period_us: i64,
    /// Memory limit in bytes; 0 for no limit.
    pub memory_limit_bytes: i64,
    /// `oom_score_adj`.
    pub oom_score_adj: i64,
    /// CPUs as the kernel lists them, `0-3,7`; empty for all.
    pub cpuset_cpus: String,
    /// Memory nodes in the same form; empty for all.
    pub cpuset_mems: String,
    /// Most processes; 0 for no limit. The pod's cgroup alone has one.
    pub pids_limit: i64,
    /// Bytes per size of huge page, as `2MB`.
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Files of cgroup v2 as they are to be written.
    pub unified: BTreeMap<String, String>,
    /// Memory and swap together in bytes; 0 leaves it to the runtime.
    pub memory_swap_limit_bytes: i64,
}

/// Security settings of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSecurity {
    /// `privileged`.
    pub privileged: bool,
    /// `readOnlyRootFilesystem`.
    pub read_only_rootfs: bool,
    /// Not `allowPrivilegeEscalation`.
    pub no_new_privileges: bool,
    /// `runAsUser`.
    pub run_as_user: Option<i64>,
    /// `runAsGroup`.
    pub run_as_group: Option<i64>,
    /// Supplemental groups.
    pub supplemental_groups: Vec<i64>,
    /// `supplementalGroupsPolicy` is `Strict`: the image's groups do not count.
    pub supplemental_groups_strict: bool,
    /// `capabilities.add`.
    pub add_capabilities: Vec<String>,
    /// `capabilities.drop`.
    pub drop_capabilities: Vec<String>,
    /// Which namespaces are the host's.
    pub namespaces: NamespaceOptions,
    /// The container whose processes this one sees: `targetContainerName` of an ephemeral one.
    pub target: Option<ContainerId>,
    /// `seccompProfile`; `None`: no filter.
    pub seccomp: Option<SecurityProfile>,
    /// `appArmorProfile`; `None` leaves it to the runtime.
    pub app_armor: Option<SecurityProfile>,
    /// `seLinuxOptions`.
    pub selinux: Option<SeLinux>,
    /// `procMount: Unmasked`: all of `/proc` is seen and written.
    pub proc_unmasked: bool,
}
