//! Volumes as the kubelet sees them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;

use crate::ids::PodUid;

/// Makes and removes the volumes of pods. Every method may be repeated.
pub trait Volumes: Send + Sync {
    /// Makes all volumes of the pod that can be made; answers where each lies on the node.
    ///
    /// # Errors
    /// The first volume that could not be made, by name.
    fn set_up<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
    ) -> BoxFuture<'a, Result<BTreeMap<String, PathBuf>, VolumeError>>;

    /// Brings the files of volumes up to date that show what may change: objects of the control
    /// plane, tokens, and what is written about the pod itself.
    fn refresh<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), VolumeError>>;

    /// Unmounts and removes all volumes and the pod's folder, and with `logs` its logs. Missing is
    /// success.
    fn tear_down<'a>(
        &'a self,
        pod: &'a PodUid,
        logs: bool,
    ) -> BoxFuture<'a, Result<(), VolumeError>>;

    /// The place of `subPath` within a volume that was made, resolved without following a link out
    /// of it, and made if it is not there; bound below the pod's folder so that it stays what it
    /// is.
    fn sub_path<'a>(
        &'a self,
        pod: &'a PodUid,
        mount: &'a SubPath,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>>;

    /// How long the files of the pod's volumes are good without a [`Self::refresh`], which is for
    /// tokens; `None`: until something changes. Asked for again after each refresh.
    fn refresh_due(&self, pod: &PodUid) -> Option<Duration>;

    /// What the pod's volumes were made without, in words: a token and the certificate beside it,
    /// as long as the control plane has not been reached since this program started. `None`: they
    /// are whole. A [`Self::refresh`] brings what is lacking.
    fn lacking(&self, pod: &PodUid) -> Option<String>;

    /// The pods that have a folder on this node.
    fn pods_on_disk(&self) -> BoxFuture<'_, Result<Vec<PodUid>, VolumeError>>;
}

/// One mount of a part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// `spec.volumes[].name`.
    pub volume: String,
    /// Where the volume lies on the node.
    pub path: PathBuf,
    /// The container's name.
    pub container: String,
    /// Index of the mount in the container's `volumeMounts`.
    pub index: usize,
    /// `subPath`, or `subPathExpr` with its variables replaced.
    pub sub_path: String,
}

/// Files of a pod beside its volumes. Every method may be repeated.
pub trait PodFiles: Send + Sync {
    /// Where the `/etc/hosts` of the pod's containers lies; [`Volumes::set_up`] makes it empty, so
    /// that a container can be made before the pod has its address.
    fn hosts_path(&self, pod: &PodUid) -> PathBuf;

    /// Writes the `/etc/hosts` that the pod's containers see; answers its path on the node.
    fn hosts_file<'a>(
        &'a self,
        pod: &'a PodUid,
        content: &'a str,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>>;

    /// The node's own `/etc/hosts`, for pods in its network.
    fn node_hosts(&self) -> BoxFuture<'_, Result<String, VolumeError>>;

    /// Makes the empty file that a container sees as its `terminationMessagePath`; answers its path
    /// on the node.
    fn termination_log<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>>;

    /// What the container wrote there, at most the last `bytes_max`, as text; empty if there is
    /// none.
    fn termination_message<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>>;

    /// The last lines of a container's log (CRI's format, stamps removed).
    fn log_tail<'a>(
        &'a self,
        log: &'a Path,
        lines_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>>;
}

/// Why a volume is not there.
#[derive(Debug, Clone, thiserror::Error)]
pub enum VolumeError {
    /// A kind that this node does not serve.
    #[error("volume \"{volume}\": {kind} volumes are not served by this node")]
    Unsupported {
        /// `spec.volumes[].name`.
        volume: String,
        /// The kind's name in the API.
        kind: String,
    },
    /// A ConfigMap, Secret or key that is not there and not optional.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {what} not found")]
    Missing {
        /// `spec.volumes[].name`.
        volume: String,
        /// `configmap "name"`, `secret "name"` or a key of one.
        what: String,
    },
    /// A claim that has no volume yet.
    #[error(
        "MountVolume.SetUp failed for volume \"{volume}\" : \
        PersistentVolumeClaim is not bound: \"{claim}\""
    )]
    NotBound {
        /// `spec.volumes[].name`.
        volume: String,
        /// The claim's name.
        claim: String,
    },
    /// A claim's volume that other nodes have.
    #[error(
        "MountVolume.NodeAffinity check failed for volume \"{volume}\" : \
        no matching NodeSelectorTerms"
    )]
    NodeAffinity {
        /// `spec.volumes[].name`.
        volume: String,
    },
    /// A `subPath` that no volume has.
    #[error("{0}")]
    BadSubPath(String),
    /// A `subPath` that cannot be mounted. Why is for the node's log alone: it tells of files that
    /// are not the pod's.
    #[error("failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\"")]
    SubPath {
        /// `spec.volumes[].name`.
        volume: String,
        /// The container's name.
        container: String,
        /// What went wrong.
        cause: String,
    },
    /// The kernel or the control plane said no.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {cause}")]
    Failed {
        /// `spec.volumes[].name`.
        volume: String,
        /// What went wrong.
        cause: String,
    },
}
