//! Volumes as the kubelet sees them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

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

    /// Brings the files of ConfigMap and Secret volumes up to date.
    fn refresh<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), VolumeError>>;

    /// Unmounts and removes all volumes and the pod's folder, and with `logs` its logs. Missing is
    /// success.
    fn tear_down<'a>(
        &'a self,
        pod: &'a PodUid,
        logs: bool,
    ) -> BoxFuture<'a, Result<(), VolumeError>>;

    /// The pods that have a folder on this node.
    fn pods_on_disk(&self) -> BoxFuture<'_, Result<Vec<PodUid>, VolumeError>>;
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
    #[error("MountVolume.SetUp failed for volume \"{volume}\": {what} not found")]
    Missing {
        /// `spec.volumes[].name`.
        volume: String,
        /// `configmap "name"`, `secret "name"` or a key of one.
        what: String,
    },
    /// The kernel or the control plane said no.
    #[error("MountVolume.SetUp failed for volume \"{volume}\": {cause}")]
    Failed {
        /// `spec.volumes[].name`.
        volume: String,
        /// What went wrong.
        cause: String,
    },
}
