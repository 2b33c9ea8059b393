//! The container runtime as the kubelet sees it, and what it reports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::clock::Deadline;
use crate::ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};

/// The container runtime.
///
/// Every method may be retried: an implementation treats "already so" as success. No method retries
/// by itself; the worker that called decides.
pub trait Runtime: Send + Sync {
    /// Name and version of the runtime, for `doctor` and the Node object.
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>>;

    /// Whether the runtime and its network say that they are ready.
    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>>;

    /// Creates and starts the pod's sandbox, with its network attached.
    ///
    /// # Errors
    /// [`RuntimeError::Unavailable`] or [`RuntimeError::Timeout`]: the sandbox may or may not exist
    /// then.
    fn run_sandbox<'a>(
        &'a self,
        config: &'a SandboxConfig,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>>;

    /// Kills what runs in the sandbox and releases its network. A missing sandbox is success.
    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Removes the sandbox and its containers. A missing sandbox is success.
    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// State and addresses of one sandbox.
    fn sandbox_status<'a>(
        &'a self,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>>;

    /// Creates a container in a sandbox; does not start it.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        container: &'a ContainerConfig,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>>;

    /// Starts a created container. A running one is success.
    fn start_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// SIGTERM, then SIGKILL when `grace` is over. A stopped or missing container is success.
    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Removes a stopped container. A missing one is success.
    fn remove_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// State of one container with exit code, times and image.
    fn container_status<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>>;

    /// All that the runtime holds for one pod, with each container's status.
    fn pod<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>>;

    /// All pods of the runtime, from its two list calls; containers bear state and exit code
    /// [`None`], which only [`Runtime::pod`] fetches.
    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>>;

    /// The image's id if the runtime has it.
    fn image_present<'a>(
        &'a self,
        image: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, RuntimeError>>;

    /// Pulls the image and answers its id.
    fn pull_image<'a>(
        &'a self,
        image: &'a str,
        pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>>;
}

/// What can go wrong between the kubelet and the runtime.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RuntimeError {
    /// No answer in time; the effect may have happened.
    #[error("the runtime did not answer {call} within {limit_ms} ms")]
    Timeout {
        /// The CRI method.
        call: &'static str,
        /// The limit that passed.
        limit_ms: u64,
    },
    /// The socket does not answer.
    #[error("cannot reach the runtime at {socket}: {cause}")]
    Unavailable {
        /// The runtime's socket.
        socket: PathBuf,
        /// What the transport said.
        cause: String,
    },
    /// The object named in the call does not exist.
    #[error("{call}: not found: {message}")]
    NotFound {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
    /// The object exists already under that name.
    #[error("{call}: already exists: {message}")]
    AlreadyExists {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
    /// Any other refusal.
    #[error("{call}: {message}")]
    Refused {
        /// The CRI method.
        call: &'static str,
        /// The runtime's words.
        message: String,
    },
}

impl RuntimeError {
    /// Whether the same call may succeed without anything else changing.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Unavailable { .. })
    }

    /// Whether the object named in the call does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Name and version of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// `containerd`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// CRI's version.
    pub api_version: String,
}

/// What the runtime says of its own health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Containers can be run.
    pub runtime_ready: bool,
    /// Sandboxes can get a network.
    pub network_ready: bool,
    /// Why not, in the runtime's words; empty when all is well.
    pub message: String,
}

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
    /// Some container is privileged.
    pub privileged: bool,
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
    /// `capabilities.add`.
    pub add_capabilities: Vec<String>,
    /// `capabilities.drop`.
    pub drop_capabilities: Vec<String>,
    /// Which namespaces are the host's.
    pub namespaces: NamespaceOptions,
    /// `seccompProfile.type: RuntimeDefault`; otherwise no filter, which is kubelet's default too.
    pub seccomp_runtime_default: bool,
}

/// State of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// Its process runs.
    Ready,
    /// It has stopped, or the network is gone.
    NotReady,
}

/// A sandbox as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The runtime's id.
    pub id: SandboxId,
    /// The pod.
    pub pod: PodKey,
    /// The attempt that made it.
    pub attempt: u32,
    /// Ready or not.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Addresses, the first one primary; empty in lists and for the host's network.
    pub ips: Vec<String>,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// Exit code; 128 + signal if a signal ended it.
    pub code: i32,
    /// The kernel killed it for memory.
    pub oom_killed: bool,
    /// When.
    pub at: Timestamp,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `ContainerStatusUnknown`.
    pub reason: String,
    /// More words, often none.
    pub message: String,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A container as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// The runtime's id.
    pub id: ContainerId,
    /// The container's name in the pod, from its labels.
    pub name: ContainerName,
    /// The sandbox that it is in.
    pub sandbox: SandboxId,
    /// The attempt that made it: the API's restart count.
    pub attempt: u32,
    /// Created, running, exited.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was started, if it was and the status was asked for.
    pub started_at: Option<Timestamp>,
    /// How it ended, if it did and the status was asked for.
    pub exit: Option<ContainerExit>,
    /// The image as the pod named it.
    pub image: String,
    /// The image's id in the runtime (`repo@digest` or an id).
    pub image_id: String,
    /// Hash of the container's spec when it was made, from its annotations.
    pub spec_hash: Option<u64>,
}

/// What the runtime holds for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePod {
    /// The pod.
    pub pod: PodKey,
    /// Its sandboxes, newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// Its containers, newest first.
    pub containers: Vec<ContainerStatus>,
}

impl RuntimePod {
    /// A pod of which the runtime knows nothing.
    pub fn empty(pod: PodKey) -> Self {
        Self {
            pod,
            sandboxes: Vec::new(),
            containers: Vec::new(),
        }
    }

    /// The newest container of that name.
    pub fn newest(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers
            .iter()
            .find(|container| container.name.as_str() == name)
    }
}

/// Labels and annotations that kubelet puts on sandboxes and containers.
/// Source: `pkg/kubelet/types/labels.go` and `kuberuntime/labels.go` of Kubernetes.
pub mod labels {
    /// Name of the pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Namespace of the pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// UID of the pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Name of the container.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Hash of the container's spec.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// Restart count of the container.
    pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Grace period of the pod, in seconds.
    pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}
