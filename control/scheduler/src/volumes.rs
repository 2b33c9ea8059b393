//! What is known of claims, volumes and their classes.

pub(crate) mod reservations;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use swiftlet_client::api::Api;
use swiftlet_client::informer::{ChangeReceiver, Informer};
use swiftlet_client::reflector::Store;
use tokio_util::sync::CancellationToken;

/// The newest state of them.
#[derive(Clone)]
pub(crate) struct VolumeStores {
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) classes: Store<StorageClass>,
    /// For their labels, once one of them is chosen.
    pub(crate) nodes: Store<Node>,
}

impl VolumeStores {
    /// Waits until all have been listed; false if that will not happen.
    pub(crate) async fn wait_synced(&self) -> bool {
        self.claims.wait_synced().await
            && self.volumes.wait_synced().await
            && self.classes.wait_synced().await
    }
}

/// Tells that one of them changed.
pub(crate) struct VolumeChanges {
    claims: ChangeReceiver<PersistentVolumeClaim>,
    volumes: ChangeReceiver<PersistentVolume>,
    classes: ChangeReceiver<StorageClass>,
}

impl VolumeChanges {
    /// The next change; `None` when nobody tells any more. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Option<()> {
        tokio::select! {
            Some(_) = self.claims.recv() => Some(()),
            Some(_) = self.volumes.recv() => Some(()),
            Some(_) = self.classes.recv() => Some(()),
            else => None,
        }
    }
}

/// Begins to follow them.
pub(crate) fn follow(
    api: &Arc<dyn Api>,
    nodes: Store<Node>,
    shutdown: &CancellationToken,
) -> (VolumeStores, VolumeChanges) {
    let mut claims = Informer::new(Arc::clone(api), Vec::new());
    let mut volumes = Informer::new(Arc::clone(api), Vec::new());
    let mut classes = Informer::new(Arc::clone(api), Vec::new());
    let stores = VolumeStores {
        claims: claims.store(),
        volumes: volumes.store(),
        classes: classes.store(),
        nodes,
    };
    let changes = VolumeChanges {
        claims: claims.subscribe(),
        volumes: volumes.subscribe(),
        classes: classes.subscribe(),
    };
    claims.spawn(shutdown.clone());
    volumes.spawn(shutdown.clone());
    classes.spawn(shutdown.clone());
    (stores, changes)
}
