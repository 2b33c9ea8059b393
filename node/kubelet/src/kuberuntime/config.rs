//! What the runtime is told: configuration of sandboxes and containers. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey};
use swiftlet_model::runtime::{ContainerConfig, ImageUser, labels};

use crate::cgroups;
use crate::kuberuntime::env::{self, EnvError, EnvFacts, Referenced};
use crate::kuberuntime::expand::expand;
use crate::kuberuntime::hash::spec_hash;
use crate::kuberuntime::places::Places;
use crate::options::PodSettings;

pub mod dns;
pub mod hostname;
mod mounts;
mod non_root;
mod ports;
pub mod sandbox;
pub mod security;
pub mod sysctl;

pub use non_root::NonRootError;
pub use sandbox::{SandboxInputs, sandbox_config};

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
    /// Variables of a `subPathExpr` that have no value.
    #[error("missing value for {0}")]
    SubPathExpr(String),
    /// `runAsNonRoot`, but it would be root, or may be.
    #[error(transparent)]
    NonRoot(#[from] NonRootError),
    /// `seccompProfile.type: Localhost` that names no file.
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    NoSeccompProfile,
    /// `recursiveReadOnly` that cannot be had.
    #[error("volume \"{mount}\" requested recursive read-only mode, but {problem}")]
    Recursive {
        /// The mounted volume.
        mount: String,
        /// Why.
        problem: String,
    },
}

/// All that goes into a container's configuration beside the pod.
#[derive(Debug)]
pub struct ContainerInputs<'a> {
    /// The attempt.
    pub attempt: u32,
    /// The image's id in the runtime, or its name.
    pub image: &'a str,
    /// Who its processes are if the pod does not say.
    pub image_user: &'a ImageUser,
    /// Where the volumes lie.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// Where else its mounts lie.
    pub places: &'a Places,
    /// ConfigMaps and Secrets of the environment.
    pub referenced: &'a Referenced,
    /// Variables of Services.
    pub services: &'a BTreeMap<String, String>,
    /// What the environment may ask for.
    pub env: &'a EnvFacts,
    /// For `oom_score_adj`.
    pub memory_capacity_bytes: i64,
    /// How this node treats its pods.
    pub settings: &'a PodSettings,
    /// The container whose processes an ephemeral container sees.
    pub target: Option<ContainerId>,
}

/// A container of a pod.
pub fn container_config(
    pod: &Pod,
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<ContainerConfig, ConfigError> {
    non_root::verify(pod, container, inputs.image_user)?;
    let (env, variables) = env::environment(
        pod,
        container,
        inputs.referenced,
        inputs.services,
        inputs.env,
    )?;
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
        mounts: mounts::mounts(pod, container, inputs.volumes, inputs.places)?,
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        resources: cgroups::container_resources(pod, container, inputs.memory_capacity_bytes),
        security: security::security(pod, container, inputs.settings, inputs.target.clone())?,
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
