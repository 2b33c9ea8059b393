//! ReplicaSet: as many pods of a template as are wanted.
//!
//! ```text
//! pods of the set ─▶ claim ─▶ plan (pure) ─▶ manage: create in batches, or delete by rank
//!                               │              (not while the last pass's effects are unseen)
//!                               └─▶ status (pure) ─▶ update_status
//! ```

mod expectations;
mod manage;
mod plan;
mod rank;
mod status;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::api::Api;
use swiftlet_client::informer::ChangeReceiver;
use swiftlet_client::recorder::Recorder;
use swiftlet_client::reflector::Change;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use swiftlet_proto::selector::LabelSelector;
use tokio_util::sync::CancellationToken;

use crate::claim;
use crate::clock::Clock;
use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::owner::{controller_key, controller_of};
use crate::pod_state::is_active;
use crate::reconcile::{self, Again, Reconcile};
use expectations::Expectations;

/// Sets that are worked on at a time (Kubernetes' `ConcurrentRSSyncs`).
const WORKERS: usize = 5;

/// The ReplicaSet controller before it runs.
pub(crate) struct ReplicaSetController {
    controller: Arc<Controller>,
    pod_changes: ChangeReceiver<Pod>,
    set_changes: ChangeReceiver<ReplicaSet>,
}

struct Controller {
    client: Client,
    stores: Stores,
    queue: WorkQueue<ObjectKey>,
    expectations: Expectations,
    recorder: Recorder,
    clock: Clock,
}

enum Event {
    Pod(Change<Pod>),
    ReplicaSet(Change<ReplicaSet>),
}

impl ReplicaSetController {
    pub(crate) fn new(
        api: &Arc<dyn Api>,
        informers: &mut Informers,
        clock: Clock,
        shutdown: &CancellationToken,
    ) -> Self {
        let name = "replicaset-controller";
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            queue: WorkQueue::new(),
            expectations: Expectations::default(),
            recorder: Recorder::spawn(Arc::clone(api), name, shutdown.clone()),
            clock,
        };
        Self {
            controller: Arc::new(controller),
            pod_changes: informers.pods.subscribe(),
            set_changes: informers.replica_sets.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            mut pod_changes,
            mut set_changes,
        } = self;
        let listener = Arc::clone(&controller);
        let events = async move {
            loop {
                let event = tokio::select! {
                    biased;
                    Some(change) = set_changes.recv() => Event::ReplicaSet(change),
                    Some(change) = pod_changes.recv() => Event::Pod(change),
                    else => return,
                };
                match event {
                    Event::Pod(change) => listener.on_pod(&change),
                    Event::ReplicaSet(change) => listener.on_set(&change),
                }
            }
        };
        let stores = controller.stores.clone();
        reconcile::run(controller, WORKERS, stores.synced(), events, shutdown).await;
    }
}

impl Controller {
    fn on_set(&self, change: &Change<ReplicaSet>) {
        let key = change.object().key();
        if let Change::Deleted(_) = change {
            self.expectations.forget(&key);
        }
        self.queue.add(key);
    }

    fn on_pod(&self, change: &Change<Pod>) {
        let pod = change.object();
        let mut owner = self.owner_of(pod);
        match change {
            Change::Added(_) if !pod.is_terminating() => {
                if let Some(key) = &owner {
                    self.expectations.created(key);
                }
            }
            Change::Added(_) | Change::Deleted(_) => self.observe_deletion(owner.as_ref(), pod),
            Change::Updated { old, new } => {
                if new.is_terminating() {
                    self.observe_deletion(owner.as_ref(), pod);
                }
                if controller_of(&old.metadata) != controller_of(&new.metadata)
                    && let Some(before) = self.owner_of(old)
                {
                    self.queue.add(before);
                }
                if controller_of(&new.metadata).is_none()
                    && old.metadata.labels == new.metadata.labels
                    && controller_of(&old.metadata).is_none()
                {
                    // An orphan interests a set only when its labels change.
                    return;
                }
            }
        }
        if let Some(key) = owner.take() {
            self.queue.add(key);
        } else if controller_of(&pod.metadata).is_none() && !matches!(change, Change::Deleted(_)) {
            self.add_sets_that_select(pod);
        }
    }

    fn observe_deletion(&self, owner: Option<&ObjectKey>, pod: &Pod) {
        if let Some(key) = owner {
            self.expectations.deleted(key, pod.uid());
        }
    }

    /// The set that controls the pod, unless it is another one of the same name.
    fn owner_of(&self, pod: &Pod) -> Option<ObjectKey> {
        let key = controller_key::<ReplicaSet>(&pod.metadata)?;
        let uid = controller_of(&pod.metadata).map(|owner| owner.uid.as_str());
        let set = self.stores.replica_sets.get(&key);
        // A set that the informer has not shown yet may own pods already.
        set.is_none_or(|set| Some(set.uid()) == uid).then_some(key)
    }

    fn add_sets_that_select(&self, pod: &Pod) {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let sets = self.stores.replica_sets.snapshot();
        for set in sets.in_namespace(pod.namespace()) {
            if selector_of(set).is_ok_and(|selector| selector.matches(&labels)) {
                self.queue.add(set.key());
            }
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Result<Again, ControllerError> {
        let Some(set) = self.stores.replica_sets.get(key) else {
            self.expectations.forget(key);
            return Ok(None);
        };
        // Asked before the pods are read: what is satisfied now is visible in the snapshot.
        let satisfied = self.expectations.satisfied(key);
        let selector = selector_of(&set)?;
        let claims = claim::decide(&*set, &selector, &self.stores.pods.snapshot());
        let mut pods = claim::carry_out(&self.client, &*set, claims).await?;
        pods.retain(|pod| is_active(pod));
        let managed = if satisfied && !set.is_terminating() {
            manage::manage(self, &set, &pods).await
        } else {
            Ok(())
        };
        let failure = managed.as_ref().err();
        let (status, again) = status::compute(&set, &pods, failure, self.clock.now());
        if set.status.as_ref() != Some(&status) {
            let mut updated = (*set).clone();
            updated.status = Some(status);
            self.client.update_status(&updated).await?;
        }
        managed.map_err(manage::Failure::into_error)?;
        Ok(again)
    }
}

impl Reconcile for Controller {
    type Key = ObjectKey;
    const NAME: &'static str = "replicaset";

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    fn reconcile<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Again, ControllerError>> {
        Box::pin(self.sync(key))
    }
}

fn selector_of(set: &ReplicaSet) -> Result<LabelSelector, ControllerError> {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    Ok(LabelSelector::from_object(selector)?)
}

/// `spec.replicas`; one if it is missing, as the API defaults it.
pub(crate) fn wanted_replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}
