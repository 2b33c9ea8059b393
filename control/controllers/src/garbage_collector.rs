//! Garbage collection: what is owned goes with its owner.
//!
//! Over pods, replica sets and deployments:
//! - an object all of whose owners are gone is deleted;
//! - a terminating owner with the finalizer `foregroundDeletion` waits until the dependents that
//!   block it are gone; with `orphan` its dependents lose the reference to it; then the finalizer
//!   goes.

mod graph;
mod sync;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::api::Api;
use swiftlet_client::informer::ChangeReceiver;
use swiftlet_client::reflector::Change;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object};
use tokio_util::sync::CancellationToken;

use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::owner::owners_of;
use crate::reconcile::{self, Again, Reconcile};
use graph::{Item, Kind};

/// Objects that are worked on at a time (half of Kubernetes' `ConcurrentGCSyncs`).
const WORKERS: usize = 10;

/// The garbage collector before it runs.
pub(crate) struct GarbageCollector {
    controller: Arc<Controller>,
    pod_changes: ChangeReceiver<Pod>,
    set_changes: ChangeReceiver<ReplicaSet>,
    deployment_changes: ChangeReceiver<Deployment>,
}

struct Controller {
    client: Client,
    stores: Stores,
    queue: WorkQueue<Item>,
}

impl GarbageCollector {
    pub(crate) fn new(api: &Arc<dyn Api>, informers: &mut Informers) -> Self {
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            queue: WorkQueue::new(),
        };
        Self {
            controller: Arc::new(controller),
            pod_changes: informers.pods.subscribe(),
            set_changes: informers.replica_sets.subscribe(),
            deployment_changes: informers.deployments.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            mut pod_changes,
            mut set_changes,
            mut deployment_changes,
        } = self;
        let listener = Arc::clone(&controller);
        let events = async move {
            loop {
                tokio::select! {
                    biased;
                    Some(change) = deployment_changes.recv() => {
                        listener.on_change(Kind::Deployment, &change);
                    }
                    Some(change) = set_changes.recv() => {
                        listener.on_change(Kind::ReplicaSet, &change);
                    }
                    Some(change) = pod_changes.recv() => listener.on_change(Kind::Pod, &change),
                    else => return,
                }
            }
        };
        let stores = controller.stores.clone();
        reconcile::run(controller, WORKERS, stores.synced(), events, shutdown).await;
    }
}

impl Controller {
    fn on_change<T: Object>(&self, kind: Kind, change: &Change<T>) {
        let meta = change.object().metadata();
        match change {
            Change::Deleted(object) => {
                self.add_dependents(object.uid());
                // An owner may wait for this one.
                for owner in owners_of(meta) {
                    if let Some(kind) = Kind::of(owner) {
                        self.queue.add(Item::owner(kind, object.namespace(), owner));
                    }
                }
            }
            Change::Updated { old, new }
                if owners_of(old.metadata()) == owners_of(meta)
                    && old.is_terminating() == new.is_terminating() => {}
            Change::Added(object) | Change::Updated { new: object, .. } => {
                if !owners_of(meta).is_empty() || object.is_terminating() {
                    self.queue.add(Item::new(kind, &**object));
                }
            }
        }
    }

    fn add_dependents(&self, uid: &str) {
        for item in graph::dependents(&self.stores, uid) {
            self.queue.add(item);
        }
    }
}

impl Reconcile for Controller {
    type Key = Item;
    const NAME: &'static str = "garbage-collector";

    fn queue(&self) -> &WorkQueue<Item> {
        &self.queue
    }

    fn reconcile<'a>(&'a self, item: &'a Item) -> BoxFuture<'a, Result<Again, ControllerError>> {
        Box::pin(self.sync(item))
    }
}
