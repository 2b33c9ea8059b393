//! Deployment: replica sets of the present and of past templates, and the way from one to the
//! other.
//!
//! ```text
//! sets of the deployment ─▶ claim ─▶ Sets { new, old }
//!    paused or scaled  ─▶ scale::plan (pure)      ─┐
//!    RollingUpdate     ─▶ rolling::plan (pure)    ─┼─▶ scale sets ─▶ status (pure) ─▶ API
//!    Recreate          ─▶ recreate: old to 0, wait, new up ─┘
//! ```

mod annotations;
mod apply;
mod conditions;
mod hash;
mod recreate;
mod revision;
mod rolling;
mod scale;
mod sets;
mod status;
mod strategy;
mod sync;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::api::Api;
use swiftlet_client::informer::ChangeReceiver;
use swiftlet_client::recorder::Recorder;
use swiftlet_client::reflector::Change;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use swiftlet_proto::selector::LabelSelector;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::owner::{controller_key, controller_of};
use crate::reconcile::{self, Again, Reconcile};

/// Deployments that are worked on at a time (Kubernetes' `ConcurrentDeploymentSyncs`).
const WORKERS: usize = 5;

/// The Deployment controller before it runs.
pub(crate) struct DeploymentController {
    controller: Arc<Controller>,
    deployment_changes: ChangeReceiver<Deployment>,
    set_changes: ChangeReceiver<ReplicaSet>,
    pod_changes: ChangeReceiver<Pod>,
}

struct Controller {
    client: Client,
    stores: Stores,
    queue: WorkQueue<ObjectKey>,
    recorder: Recorder,
    clock: Clock,
}

enum Event {
    Deployment(Change<Deployment>),
    ReplicaSet(Change<ReplicaSet>),
    Pod(Change<Pod>),
}

impl DeploymentController {
    pub(crate) fn new(
        api: &Arc<dyn Api>,
        informers: &mut Informers,
        clock: Clock,
        shutdown: &CancellationToken,
    ) -> Self {
        let name = "deployment-controller";
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            queue: WorkQueue::new(),
            recorder: Recorder::spawn(Arc::clone(api), name, shutdown.clone()),
            clock,
        };
        Self {
            controller: Arc::new(controller),
            deployment_changes: informers.deployments.subscribe(),
            set_changes: informers.replica_sets.subscribe(),
            pod_changes: informers.pods.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            mut deployment_changes,
            mut set_changes,
            mut pod_changes,
        } = self;
        let listener = Arc::clone(&controller);
        let events = async move {
            loop {
                let event = tokio::select! {
                    biased;
                    Some(change) = deployment_changes.recv() => Event::Deployment(change),
                    Some(change) = set_changes.recv() => Event::ReplicaSet(change),
                    Some(change) = pod_changes.recv() => Event::Pod(change),
                    else => return,
                };
                match event {
                    Event::Deployment(change) => listener.queue.add(change.object().key()),
                    Event::ReplicaSet(change) => listener.on_set(&change),
                    Event::Pod(change) => listener.on_pod(&change),
                }
            }
        };
        let stores = controller.stores.clone();
        reconcile::run(controller, WORKERS, stores.synced(), events, shutdown).await;
    }
}

impl Controller {
    fn on_set(&self, change: &Change<ReplicaSet>) {
        if let Change::Updated { old, new } = change
            && controller_of(&old.metadata) != controller_of(&new.metadata)
            && let Some(before) = controller_key::<Deployment>(&old.metadata)
        {
            self.queue.add(before);
        }
        let set = change.object();
        if let Some(key) = controller_key::<Deployment>(&set.metadata) {
            self.queue.add(key);
        } else if controller_of(&set.metadata).is_none() && !matches!(change, Change::Deleted(_)) {
            self.add_deployments_that_select(set);
        }
    }

    /// Recreate waits for the last old pod: its end wakes the deployment.
    fn on_pod(&self, change: &Change<Pod>) {
        let ended = match change {
            Change::Deleted(_) => true,
            Change::Added(_) => false,
            Change::Updated { old, new } => {
                !crate::pod_state::has_ended(old) && crate::pod_state::has_ended(new)
            }
        };
        let pod = change.object();
        let set = ended
            .then(|| controller_key::<ReplicaSet>(&pod.metadata))
            .flatten();
        let set = set.and_then(|key| self.stores.replica_sets.get(&key));
        let key = set.and_then(|set| controller_key::<Deployment>(&set.metadata));
        let Some(key) = key else { return };
        let deployment = self.stores.deployments.get(&key);
        if deployment.is_some_and(|deployment| strategy::is_recreate(&deployment)) {
            self.queue.add(key);
        }
    }

    fn add_deployments_that_select(&self, set: &ReplicaSet) {
        let labels = set.metadata.labels.clone().unwrap_or_default();
        let deployments = self.stores.deployments.snapshot();
        for deployment in deployments.in_namespace(set.namespace()) {
            if selector_of(deployment).is_ok_and(|selector| selector.matches(&labels)) {
                self.queue.add(deployment.key());
            }
        }
    }
}

impl Reconcile for Controller {
    type Key = ObjectKey;
    const NAME: &'static str = "deployment";

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

fn selector_of(deployment: &Deployment) -> Result<LabelSelector, ControllerError> {
    let selector = deployment.spec.as_ref().map(|spec| &spec.selector);
    Ok(LabelSelector::from_object(selector)?)
}

/// `spec.replicas`; one if it is missing, as the API defaults it.
fn wanted_replicas(deployment: &Deployment) -> i32 {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}
