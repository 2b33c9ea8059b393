//! Claims and volumes find each other (Kubernetes: `pkg/controller/volume/persistentvolume`, and
//! the two protection controllers beside it).
//!
//! ```text
//! volume  Available ── claimRef written ──▶ Bound ── claim gone ──▶ Released
//! claim   Pending  ─── volumeName written ──▶ Bound
//! ```
//!
//! The volume is written first: it is the scarce side. Whatever is interrupted between the writes
//! is completed from the other side by the next pass. Volumes are not made here, and none is
//! deleted: there is no plug-in that could.

mod claim;
mod select;
mod volume;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use swiftlet_client::api::Api;
use swiftlet_client::informer::{ChangeReceiver, Informer};
use swiftlet_client::recorder::Recorder;
use swiftlet_client::reflector::{Change, Store};
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use tokio_util::sync::CancellationToken;

use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::reconcile::{self, Again, Reconcile};

/// One: two claims must not choose the same volume from the same snapshot.
const WORKERS: usize = 1;

/// What the queue holds: a claim (with a namespace) or a volume (without).
type Key = ObjectKey;

/// The controller before it runs.
pub(crate) struct PersistentVolumeController {
    controller: Arc<Controller>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    changes: Changes,
}

struct Changes {
    claims: ChangeReceiver<PersistentVolumeClaim>,
    volumes: ChangeReceiver<PersistentVolume>,
    classes: ChangeReceiver<StorageClass>,
    pods: ChangeReceiver<Pod>,
}

struct Controller {
    client: Client,
    stores: Stores,
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    classes: Store<StorageClass>,
    recorder: Recorder,
    queue: WorkQueue<Key>,
}

impl PersistentVolumeController {
    pub(crate) fn new(
        api: &Arc<dyn Api>,
        informers: &mut Informers,
        shutdown: &CancellationToken,
    ) -> Self {
        let mut claims = Informer::new(Arc::clone(api), Vec::new());
        let mut volumes = Informer::new(Arc::clone(api), Vec::new());
        let mut classes = Informer::new(Arc::clone(api), Vec::new());
        let component = "persistentvolume-controller";
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            claims: claims.store(),
            volumes: volumes.store(),
            classes: classes.store(),
            recorder: Recorder::spawn(Arc::clone(api), component, shutdown.clone()),
            queue: WorkQueue::new(),
        };
        let changes = Changes {
            claims: claims.subscribe(),
            volumes: volumes.subscribe(),
            classes: classes.subscribe(),
            pods: informers.pods.subscribe(),
        };
        Self {
            controller: Arc::new(controller),
            claims,
            volumes,
            classes,
            changes,
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            claims,
            volumes,
            classes,
            changes,
        } = self;
        claims.spawn(shutdown.clone());
        volumes.spawn(shutdown.clone());
        classes.spawn(shutdown.clone());
        let events = listen(Arc::clone(&controller), changes);
        let waiting = Arc::clone(&controller);
        let synced = async move {
            waiting.stores.synced().await;
            waiting.claims.wait_synced().await;
            waiting.volumes.wait_synced().await;
            waiting.classes.wait_synced().await;
        };
        reconcile::run(controller, WORKERS, synced, events, shutdown).await;
    }
}

async fn listen(controller: Arc<Controller>, mut changes: Changes) {
    loop {
        tokio::select! {
            biased;
            Some(change) = changes.volumes.recv() => {
                let volume = change.object();
                controller.queue.add(volume.key());
                let is_news = match &change {
                    Change::Added(new) => select::is_news(None, new),
                    Change::Updated { old, new } => select::is_news(Some(old), new),
                    Change::Deleted(_) => false,
                };
                if is_news {
                    controller.queue_waiting(volume);
                }
            }
            Some(change) = changes.claims.recv() => {
                let claim = change.object();
                controller.queue.add(claim.key());
                if let Some(name) = claim::volume_name(claim) {
                    controller.queue.add(ObjectKey::new("", name));
                }
            }
            Some(_) = changes.classes.recv() => controller.queue_unbound(),
            Some(change) = changes.pods.recv() => {
                let pod = change.object();
                for key in claim::used_by(pod) {
                    controller.queue.add(key);
                }
            }
            else => return,
        }
    }
}

impl Controller {
    /// Looks again at the claims that may have waited for this volume.
    fn queue_waiting(&self, volume: &PersistentVolume) {
        for claim in self.claims.snapshot().iter() {
            let waits = match claim::volume_name(claim) {
                None => select::meets(volume, claim),
                Some(name) => name == volume.name(),
            };
            if waits {
                self.queue.add(claim.key());
            }
        }
    }

    /// Looks again at claims that have no volume.
    fn queue_unbound(&self) {
        for claim in self.claims.snapshot().iter() {
            if claim::volume_name(claim).is_none() {
                self.queue.add(claim.key());
            }
        }
    }

    async fn sync(&self, key: &Key) -> Result<Again, ControllerError> {
        if key.namespace.is_empty() {
            if let Some(volume) = self.volumes.get(key) {
                self.sync_volume(&volume).await?;
            }
        } else if let Some(claim) = self.claims.get(key) {
            self.sync_claim(&claim).await?;
        }
        Ok(None)
    }
}

impl Reconcile for Controller {
    type Key = Key;
    const NAME: &'static str = "persistent-volume";

    fn queue(&self) -> &WorkQueue<Key> {
        &self.queue
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Again, ControllerError>> {
        Box::pin(self.sync(key))
    }
}

#[cfg(test)]
mod tests;
