//! Pod volumes as files and mounts.
//!
//! ```text
//! <root>/pods/<uid>/volumes/kubernetes.io~empty-dir/<volume>
//!                           kubernetes.io~{configmap,secret,downward-api,projected}/<volume>
//!                   volume-subpaths/<volume>/<container>/<index>
//!                   containers/<container>/<attempt>
//!                   etc-hosts
//! <logs>/<namespace>_<name>_<uid>/<container>
//!
//! plan.rs       what a pod wants: pure       make.rs        folders and mounts
//! files.rs      sources of files: pure       atomic.rs      files that change all at once
//! claim.rs      what a claim is bound to     ownership.rs   a group for a whole volume
//! order.rs      all that must be fetched     sub_path.rs    parts of volumes
//! tokens.rs     tokens and their renewal     pod_files.rs   hosts, last words, ends of logs
//! payload.rs    which files: pure            tear_down.rs   unmount, remove
//! downward.rs   the pod of itself: pure      host_path.rs   paths of the node
//! references.rs who uses which PV            logs.rs        logs of containers
//! lacking.rs    what waits for an API        known.rs       where logs of pods lie
//! credential_files.rs                        checkpoint_files.rs
//! ```
//!
//! The folders are kubelet's, so that a node can be moved to or from it. The log folders are made
//! here too: containerd makes a container's log file, but not the folders above it.
//!
//! Nothing is remembered of a volume but what its folder says: a program that is started anew makes
//! all volumes of its pods again, which changes nothing that is there. A token alone is asked for
//! anew, and its file changes as at any renewal.
//!
//! All file effects of one call run one after another on one blocking thread. Measured for a
//! thousand small files: 46 ms so, 54 ms through io_uring with 64 tasks, 72 ms with `tokio::fs`;
//! the ring gains nothing for a handful of files per pod. The pod's task never waits for a disk.
#![forbid(unsafe_code)]

mod atomic;
mod checkpoint_files;
mod claim;
mod credential_files;
mod downward;
mod files;
mod folders;
mod host_path;
mod known;
mod lacking;
mod log_lines;
mod logs;
mod make;
mod order;
mod ownership;
mod payload;
mod plan;
mod pod_files;
mod references;
mod sub_path;
mod tear_down;
mod tokens;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::BoxFuture;
use swiftlet_model::clock::{Clock, SystemClock};
use swiftlet_model::control_plane::ControlPlane;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{SubPath, VolumeError, Volumes};

pub use crate::checkpoint_files::CheckpointFiles;
pub use crate::credential_files::CredentialFiles;
pub use crate::folders::Folders;
use crate::known::Known;
use crate::lacking::Lacking;
pub use crate::plan::Amounts;
use crate::references::References;
use crate::tokens::Tokens;

/// Volumes below one folder, with their data from the control plane.
#[derive(Clone)]
pub struct PodFolders {
    folders: Folders,
    control_plane: Option<Arc<dyn ControlPlane>>,
    references: Arc<References>,
    tokens: Arc<Tokens>,
    lacking: Arc<Lacking>,
    known: Arc<Known>,
    clock: Arc<dyn Clock>,
    amounts: Arc<dyn Fn() -> Amounts + Send + Sync>,
}

impl PodFolders {
    /// `folders.root` is kubelet's `/var/lib/kubelet`, `folders.logs` its `/var/log/pods`.
    pub fn new(folders: Folders, control_plane: Arc<dyn ControlPlane>) -> Self {
        Self {
            control_plane: Some(control_plane),
            ..Self::without_data(folders)
        }
    }

    /// For who only removes: volumes with data of the control plane cannot be made.
    pub fn without_data(folders: Folders) -> Self {
        Self {
            folders,
            control_plane: None,
            references: Arc::default(),
            tokens: Arc::default(),
            lacking: Arc::default(),
            known: Arc::default(),
            clock: Arc::new(SystemClock),
            amounts: Arc::new(Amounts::default),
        }
    }

    /// Asks for what the node can give to pods whenever volumes are made.
    #[must_use]
    pub fn with_amounts(self, amounts: impl Fn() -> Amounts + Send + Sync + 'static) -> Self {
        let amounts = Arc::new(amounts);
        Self { amounts, ..self }
    }

    /// Another clock, for the life of tokens.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }
}

impl Volumes for PodFolders {
    fn set_up<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
    ) -> BoxFuture<'a, Result<BTreeMap<String, PathBuf>, VolumeError>> {
        Box::pin(async move {
            let order = self.order(pod).await?;
            self.known.put(&self.folders, &order);
            let (folders, uid) = (self.folders.clone(), order.key.uid.clone());
            let made = blocking(move || {
                let places = make::set_up(&folders, &order)?;
                Ok((places, lacking::look(&folders, &order)))
            });
            let (places, lacking) = made.await?;
            self.lacking.put(&uid, lacking);
            Ok(places)
        })
    }

    fn refresh<'a>(&'a self, pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), VolumeError>> {
        Box::pin(async move {
            // A pod that ends has no use for new data, and its objects may be gone already.
            if pod.metadata.deletion_timestamp.is_some() {
                return Ok(());
            }
            let order = self.order(pod).await?;
            let (folders, uid) = (self.folders.clone(), order.key.uid.clone());
            let written = blocking(move || {
                make::refresh(&folders, &order)?;
                Ok(lacking::look(&folders, &order))
            });
            self.lacking.put(&uid, written.await?);
            Ok(())
        })
    }

    fn tear_down<'a>(
        &'a self,
        pod: &'a PodUid,
        logs: bool,
    ) -> BoxFuture<'a, Result<(), VolumeError>> {
        self.tokens.forget(pod);
        self.lacking.forget(pod);
        self.references.remove(pod, |object| {
            if let Some(control_plane) = &self.control_plane {
                control_plane.forget(object);
            }
        });
        let (folders, uid, place) = (self.folders.clone(), pod.clone(), self.known.logs(pod));
        Box::pin(async move {
            blocking(move || tear_down::pod(&folders, &uid, logs, place)).await?;
            if logs {
                self.known.forget(pod);
            }
            Ok(())
        })
    }

    fn sub_path<'a>(
        &'a self,
        pod: &'a PodUid,
        mount: &'a SubPath,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        let (folders, pod, mount) = (self.folders.clone(), pod.clone(), mount.clone());
        Box::pin(blocking(move || sub_path::bind(&folders, &pod, &mount)))
    }

    fn refresh_due(&self, pod: &PodUid) -> Option<Duration> {
        let token = self.tokens.due(pod, self.clock.timestamp());
        let lacking = self.lacking.due(pod);
        token.into_iter().chain(lacking).min()
    }

    fn lacking(&self, pod: &PodUid) -> Option<String> {
        self.lacking.of(pod)
    }

    fn pods_on_disk(&self) -> BoxFuture<'_, Result<Vec<PodUid>, VolumeError>> {
        let folders = self.folders.clone();
        Box::pin(blocking(move || {
            folders
                .pods()
                .map_err(|error| failed("", &format!("list the pods' folders: {error}")))
        }))
    }
}

/// Runs the whole sequence on a thread that may wait for a disk, or hang on a dead mount.
async fn blocking<T: Send + 'static>(
    effect: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let answer = tokio::task::spawn_blocking(effect).await;
    answer.unwrap_or_else(|error| Err(failed("", &format!("blocking thread: {error}"))))
}

fn failed(volume: &str, cause: &dyn std::fmt::Display) -> VolumeError {
    VolumeError::Failed {
        volume: volume.to_owned(),
        cause: cause.to_string(),
    }
}
