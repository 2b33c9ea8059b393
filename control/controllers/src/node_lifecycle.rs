//! Node lifecycle: a node that has gone silent is marked, tainted, and after a while its pods are
//! deleted.
//!
//! ```text
//! lease or report changes ─▶ heard(node, now) ─▶ timer at now + 40 s
//! silent for 40 s ─▶ conditions Unknown ─▶ taints (pure) ─▶ evictions (pure)
//! Node deleted ─▶ absent for 40 s, and the API agrees ─▶ its pods are removed
//! ```
//!
//! Silence is measured on our own clock, from the moment at which a change was seen: clocks of
//! nodes differ.

mod conditions;
mod evict;
mod orphans;
mod taints;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::json;
use swiftlet_client::api::{Api, PatchKind};
use swiftlet_client::client::delete_exactly;
use swiftlet_client::informer::ChangeReceiver;
use swiftlet_client::recorder::{EventType, Recorder};
use swiftlet_client::reflector::Change;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::ControllerError;
use crate::informers::{Informers, NODE, Stores};
use crate::reconcile::{self, Again, Reconcile};

/// Nodes that are worked on at a time (Kubernetes' `UpdateWorkerSize`, scaled down).
const WORKERS: usize = 4;
/// How long a node may be silent (Kubernetes' `NodeMonitorGracePeriod` before 1.32).
const GRACE_PERIOD: Duration = Duration::from_secs(40);
/// Where the leases of nodes live.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The node lifecycle controller before it runs.
pub(crate) struct NodeLifecycleController {
    controller: Arc<Controller>,
    node_changes: ChangeReceiver<Node>,
    lease_changes: ChangeReceiver<Lease>,
    pod_changes: ChangeReceiver<Pod>,
}

struct Controller {
    client: Client,
    stores: Stores,
    queue: WorkQueue<ObjectKey>,
    recorder: Recorder,
    clock: Clock,
    // Written by the event loop, read by workers; no section awaits.
    heard: Mutex<HashMap<String, Instant>>,
    /// When the object of a node that may have left pods behind was deleted.
    deleted: Mutex<HashMap<String, Instant>>,
}

enum Event {
    Node(Change<Node>),
    Lease(Change<Lease>),
    Pod(Change<Pod>),
}

impl NodeLifecycleController {
    pub(crate) fn new(
        api: &Arc<dyn Api>,
        informers: &mut Informers,
        clock: Clock,
        shutdown: &CancellationToken,
    ) -> Self {
        let recorder = Recorder::spawn(Arc::clone(api), "node-controller", shutdown.clone());
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            queue: WorkQueue::new(),
            recorder,
            clock,
            heard: Mutex::new(HashMap::new()),
            deleted: Mutex::new(HashMap::new()),
        };
        Self {
            controller: Arc::new(controller),
            node_changes: informers.nodes.subscribe(),
            lease_changes: informers.leases.subscribe(),
            pod_changes: informers.pods.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            mut node_changes,
            mut lease_changes,
            mut pod_changes,
        } = self;
        let listener = Arc::clone(&controller);
        let events = async move {
            loop {
                let event = tokio::select! {
                    biased;
                    Some(change) = lease_changes.recv() => Event::Lease(change),
                    Some(change) = node_changes.recv() => Event::Node(change),
                    Some(change) = pod_changes.recv() => Event::Pod(change),
                    else => return,
                };
                match event {
                    Event::Lease(change) => listener.on_lease(&change),
                    Event::Node(change) => listener.on_node(&change),
                    Event::Pod(change) => listener.on_pod(&change),
                }
            }
        };
        let stores = controller.stores.clone();
        reconcile::run(controller, WORKERS, stores.synced(), events, shutdown).await;
    }
}

impl Controller {
    fn on_lease(&self, change: &Change<Lease>) {
        let lease = change.object();
        if lease.namespace() == LEASE_NAMESPACE && !matches!(change, Change::Deleted(_)) {
            self.hear(lease.name());
        }
    }

    fn on_node(&self, change: &Change<Node>) {
        let name = change.object().name();
        match change {
            Change::Added(_) => {
                self.deleted().remove(name);
                self.hear(name);
            }
            Change::Updated { old, new } => {
                if conditions::heartbeat(old) != conditions::heartbeat(new) {
                    self.hear(name);
                }
            }
            Change::Deleted(_) => {
                self.heard().remove(name);
                self.deleted().insert(name.to_owned(), Instant::now());
            }
        }
        self.queue.add(ObjectKey::new("", name));
    }

    /// A pod that arrives on a tainted node may have to go.
    fn on_pod(&self, change: &Change<Pod>) {
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let arrived = match change {
            Change::Added(pod) => node(pod),
            Change::Updated { old, new } if node(old) != node(new) => node(new),
            Change::Updated { .. } | Change::Deleted(_) => None,
        };
        let key = ObjectKey::new("", &arrived.unwrap_or_default());
        let tainted = self.stores.nodes.get(&key).is_some_and(|node| {
            taints::of(&node)
                .iter()
                .any(|taint| taint.effect == "NoExecute")
        });
        if tainted {
            self.queue.add(key);
        }
    }

    /// Notes a sign of life. A renewed lease by itself needs no pass, unless the node counted as
    /// silent.
    fn hear(&self, name: &str) {
        let now = Instant::now();
        let before = self.heard().insert(name.to_owned(), now);
        if before.is_none_or(|before| now.duration_since(before) >= GRACE_PERIOD) {
            self.queue.add(ObjectKey::new("", name));
        }
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deleted(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sync(&self, key: &ObjectKey) -> Result<Again, ControllerError> {
        let Some(mut node) = self.stores.nodes.get(key) else {
            return self.remove_orphans(key).await;
        };
        let heard = *self
            .heard()
            .entry(key.name.clone())
            .or_insert_with(Instant::now);
        let left = GRACE_PERIOD.saturating_sub(heard.elapsed());
        if left.is_zero()
            && let Some(conditions) = conditions::unknown(&node, self.clock.now())
        {
            node = Arc::new(self.mark_unknown(&node, conditions).await?);
        }
        let wanted = taints::wanted(&node, self.clock.now());
        if wanted != taints::of(&node) {
            node = Arc::new(self.set_taints(&node, wanted).await?);
        }
        let eviction = self.evict(&node).await?;
        let watchful = Some(left).filter(|left| !left.is_zero());
        Ok(watchful.into_iter().chain(eviction).min())
    }

    async fn mark_unknown(
        &self,
        node: &Node,
        conditions: Vec<k8s_openapi::api::core::v1::NodeCondition>,
    ) -> Result<Node, ControllerError> {
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        let updated = self
            .client
            .patch_status(&node.key(), PatchKind::Merge, &patch)
            .await?;
        let message = format!("Node {} status is now: NodeNotReady", node.name());
        self.recorder
            .record(node, EventType::Normal, "NodeNotReady", &message);
        Ok(updated)
    }

    async fn set_taints(&self, node: &Node, taints: Vec<Taint>) -> Result<Node, ControllerError> {
        let taints = if taints.is_empty() {
            json!(null)
        } else {
            json!(taints)
        };
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        Ok(self
            .client
            .patch(&node.key(), PatchKind::Merge, &patch)
            .await?)
    }

    /// Says in the pod why it ends. A pod that is gone, or another one by now, is left as it is.
    async fn mark_disrupted(&self, pod: &Pod) -> Result<(), ControllerError> {
        let Some(conditions) = evict::disrupted(pod, self.clock.now()) else {
            return Ok(());
        };
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": conditions},
        });
        match self
            .client
            .patch_status::<Pod>(&pod.key(), PatchKind::Strategic, &patch)
            .await
        {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes the pods whose tolerations have run out; answers when the next one does.
    async fn evict(&self, node: &Node) -> Result<Again, ControllerError> {
        let now = self.clock.now();
        let mut next: Again = None;
        let pods = self.stores.pods.snapshot();
        for pod in pods
            .by_index(NODE, node.name())
            .filter(|pod| !pod.is_terminating())
        {
            let Some(left) = evict::time_left(pod, taints::of(node), now) else {
                continue;
            };
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            let message = format!("Marking for deletion Pod {}", pod.key());
            let kind = EventType::Normal;
            self.recorder
                .record(&**pod, kind, "TaintManagerEviction", &message);
            self.mark_disrupted(pod).await?;
            match self
                .client
                .delete::<Pod>(&pod.key(), delete_exactly(&**pod))
                .await
            {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    return Err(error.into());
                }
                _ => (),
            }
        }
        Ok(next)
    }
}

impl Reconcile for Controller {
    type Key = ObjectKey;
    const NAME: &'static str = "node-lifecycle";

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
