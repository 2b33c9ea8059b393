//! The scheduling loop: one task that owns queue and cache.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use swiftlet_client::api::Api;
use swiftlet_client::informer::{ChangeReceiver, Informer};
use swiftlet_client::recorder::{EventType, Recorder};
use swiftlet_client::reflector::Change;
use swiftlet_client::{Client, Object};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::bind::{Bound, bind};
use crate::cache::Cache;
use crate::framework::Rejection;
use crate::profile::Profile;
use crate::queue::{Attempt, ClusterEvent, SchedulingQueue};
use crate::schedule_one::{FitError, schedule_one};
use crate::unschedulable::ConditionWriter;
use crate::volumes::{self, VolumeChanges};

/// Most bindings under way at a time: enough to fill the store's group commit.
const BINDINGS_MAX: usize = 512;

/// Runs the scheduler until `shutdown`; bindings that are under way are finished first.
pub async fn run(api: Arc<dyn Api>, shutdown: CancellationToken) {
    let mut nodes = Informer::<Node>::new(Arc::clone(&api), Vec::new());
    let mut pods = Informer::<Pod>::new(Arc::clone(&api), Vec::new());
    let (volume_stores, volume_changes) = volumes::follow(&api, nodes.store(), &shutdown);
    let mut scheduler = Scheduler {
        client: Client::new(Arc::clone(&api)),
        profile: Arc::new(Profile::with_volumes(volume_stores.clone())),
        queue: SchedulingQueue::default(),
        cache: Cache::default(),
        node_changes: nodes.subscribe(),
        pod_changes: pods.subscribe(),
        volume_changes,
        bindings: JoinSet::new(),
        recorder: Recorder::spawn(Arc::clone(&api), "default-scheduler", shutdown.clone()),
        conditions: ConditionWriter::spawn(api, shutdown.clone()),
        shutdown: shutdown.clone(),
    };
    // Nodes, volumes and bound pods must be known before the first decision; afterwards nothing
    // waits.
    let (node_store, pod_store) = (nodes.store(), pods.store());
    nodes.spawn(shutdown.clone());
    pods.spawn(shutdown.clone());
    let synced = async {
        node_store.wait_synced().await
            && pod_store.wait_synced().await
            && volume_stores.wait_synced().await
    };
    if shutdown.run_until_cancelled(synced).await != Some(true) {
        return;
    }
    // The queues hold only the first of the initial changes, so the caches are filled from the
    // stores.
    for node in node_store.snapshot().iter() {
        scheduler.cache.set_node(node);
    }
    for pod in pod_store.snapshot().iter().filter(|pod| !has_ended(pod)) {
        match node_of(pod) {
            "" => (),
            node => scheduler.cache.set_pod(pod, node),
        }
    }
    scheduler.run().await;
}

struct Scheduler {
    client: Client,
    profile: Arc<Profile>,
    queue: SchedulingQueue,
    cache: Cache,
    node_changes: ChangeReceiver<Node>,
    pod_changes: ChangeReceiver<Pod>,
    volume_changes: VolumeChanges,
    bindings: JoinSet<Bound>,
    recorder: Recorder,
    conditions: ConditionWriter,
    shutdown: CancellationToken,
}

/// Everything that can wake the scheduler.
enum Event {
    Shutdown,
    Bound(Box<Bound>),
    Node(Change<Node>),
    Pod(Change<Pod>),
    /// A claim, a volume or a class of them changed.
    Volume,
    /// A pod waits for a node.
    Active,
    /// A back-off or an assumption has run out.
    Due,
}

impl Scheduler {
    async fn run(mut self) {
        info!("scheduler started");
        loop {
            match self.next_event().await {
                Event::Shutdown => break,
                Event::Bound(bound) => self.on_bound(*bound),
                Event::Node(change) => self.on_node(change),
                Event::Pod(change) => self.on_pod(&change),
                Event::Volume => self.queue.on_event(ClusterEvent::Volume, Instant::now()),
                Event::Active => self.on_active(),
                Event::Due => self.on_due(),
            }
        }
        while self.bindings.join_next().await.is_some() {}
    }

    /// What is known comes before what is decided: a decision on old facts would only be refused.
    /// Facts cannot starve decisions, because the queues are bounded and taking a fact costs
    /// microseconds.
    async fn next_event(&mut self) -> Event {
        let due = self
            .queue
            .next_due()
            .into_iter()
            .chain(self.cache.next_expiry())
            .min();
        let may_bind = self.bindings.len() < BINDINGS_MAX && self.queue.has_active();
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Event::Shutdown,
            Some(Ok(bound)) = self.bindings.join_next() => Event::Bound(Box::new(bound)),
            Some(change) = self.node_changes.recv() => Event::Node(change),
            Some(change) = self.pod_changes.recv() => Event::Pod(change),
            Some(()) = self.volume_changes.recv() => Event::Volume,
            () = std::future::ready(()), if may_bind => Event::Active,
            () = until(due) => Event::Due,
        }
    }

    fn on_node(&mut self, change: Change<Node>) {
        match change {
            Change::Added(node) => self.cache.set_node(&node),
            Change::Updated { old, new } => {
                self.cache.set_node(&new);
                if !is_node_better(&old, &new) {
                    return;
                }
            }
            Change::Deleted(node) => {
                self.cache.remove_node(node.name());
                return;
            }
        }
        self.queue.on_event(ClusterEvent::Node, Instant::now());
    }

    fn on_pod(&mut self, change: &Change<Pod>) {
        let pod = change.object();
        let node = node_of(pod);
        let gone = matches!(change, Change::Deleted(_)) || has_ended(pod);
        if gone || !node.is_empty() {
            self.queue.remove(pod.uid());
        }
        if gone {
            if self.cache.remove(pod.uid()) {
                self.queue.on_event(ClusterEvent::PodGone, Instant::now());
            }
        } else if !node.is_empty() {
            self.cache.set_pod(pod, node);
        } else if self.is_ours(pod) {
            if !self.cache.is_assumed(pod.uid()) {
                self.queue.add(Arc::clone(pod));
            }
        } else {
            self.queue.remove(pod.uid());
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let name = spec.scheduler_name.as_deref().unwrap_or_default();
        let gated = spec
            .scheduling_gates
            .as_ref()
            .is_some_and(|gates| !gates.is_empty());
        (name.is_empty() || name == self.profile.scheduler_name) && !pod.is_terminating() && !gated
    }

    fn on_active(&mut self) {
        let Some(attempt) = self.queue.pop() else {
            return;
        };
        match schedule_one(&self.profile, &self.cache.snapshot(), &attempt.pod) {
            Ok(placement) => self.place(attempt, placement.node),
            Err(error) => self.reject(attempt, &error),
        }
    }

    fn place(&mut self, attempt: Attempt, node: String) {
        if let Err(rejection) = self.reserve(&attempt.pod, &node) {
            let error = FitError {
                nodes: 1,
                everywhere: Some(rejection),
                ..FitError::default()
            };
            self.reject(attempt, &error);
            return;
        }
        self.cache.assume(&attempt.pod, &node);
        let (profile, client) = (Arc::clone(&self.profile), self.client.clone());
        self.bindings.spawn(bind(profile, client, attempt, node));
    }

    fn reserve(&self, pod: &Pod, node: &str) -> Result<(), Rejection> {
        for plugin in &self.profile.reserve {
            if let Err(rejection) = plugin.reserve(pod, node) {
                self.unreserve(pod, node);
                return Err(rejection);
            }
        }
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, node: &str) {
        self.profile
            .reserve
            .iter()
            .rev()
            .for_each(|plugin| plugin.unreserve(pod, node));
    }

    fn reject(&mut self, attempt: Attempt, error: &FitError) {
        let message = error.to_string();
        debug!(pod = %attempt.pod.key(), %message, "unschedulable");
        self.conditions
            .report(&attempt.pod, "Unschedulable", &message);
        let pod = &*attempt.pod;
        self.recorder
            .record(pod, EventType::Warning, "FailedScheduling", &message);
        self.queue
            .unschedulable(attempt, error.plugins(), Instant::now());
    }

    fn on_bound(&mut self, bound: Bound) {
        let Bound {
            attempt,
            node,
            result,
        } = bound;
        let pod = Arc::clone(&attempt.pod);
        let Err(error) = result else {
            self.cache.finish_binding(pod.uid(), Instant::now());
            let message = format!("Successfully assigned {} to {node}", pod.key());
            self.recorder
                .record(&*pod, EventType::Normal, "Scheduled", &message);
            return;
        };
        self.unreserve(&pod, &node);
        self.cache.forget(pod.uid());
        if error.is_settled() {
            // The watch tells, or has told, what became of the pod.
            debug!(pod = %pod.key(), %error, "binding is no longer needed");
            return;
        }
        warn!(pod = %pod.key(), %error, "binding failed");
        let message = error.to_string();
        self.conditions.report(&pod, "SchedulerError", &message);
        self.recorder
            .record(&*pod, EventType::Warning, "FailedScheduling", &message);
        self.queue.failed(attempt, Instant::now());
    }

    fn on_due(&mut self) {
        let now = Instant::now();
        self.queue.flush(now);
        if self.cache.expire(now) {
            self.queue.on_event(ClusterEvent::PodGone, now);
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a node changed in a way that may let a pod in; heartbeats do not.
fn is_node_better(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|it| it.allocatable.clone());
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || allocatable(old) != allocatable(new)
}
