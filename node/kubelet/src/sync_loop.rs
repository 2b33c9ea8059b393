//! One loop, one closed enum of events, one worker per pod. The loop only dispatches: it never
//! waits for a door. Workers sleep by their own timers, so "due" pods do not pass through here.

mod references;
mod room;
mod sources;
mod vetting;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::{ControlPlaneEvent, ControlPlaneReceiver, ObjectRef, RefKind};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::lifecycle::{LifecycleReceiver, PodLifecycleEvent};
use swiftlet_model::sources::{Source, SourcePods, SourceReceiver, is_static};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::config::{PodConfig, PodUpdate};
use crate::housekeeping::{Sweep, stand_in, sweep};
use crate::keeper::Failure;
use crate::last_known::{LastKnown, Ripe};
use crate::mirror;
use crate::pod_manager::{PodManager, full_name};
use crate::pod_worker::Worker;
use crate::pod_worker::phase::Phase;
use crate::pod_worker::queue::{Mailbox, Wish, mailbox};
use crate::shared::Shared;
use crate::status::phase::PodPhase;
use crate::sync_loop::references::References;
use crate::sync_loop::vetting::{Refusals, Vetted};

/// A worker that has panicked is likely to do so again: it does not do so all the time.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Everything that can wake the sync loop. If it is not here, it cannot happen.
enum Event {
    /// The program ends.
    Shutdown,
    /// A container started, died or changed.
    Lifecycle(PodLifecycleEvent),
    /// A worker has nothing left to do.
    WorkerDone(PodUid),
    /// A worker has panicked.
    WorkerLost(Id),
    /// The control plane said something.
    Config(Vetted),
    /// Another source listed its pods.
    Source(SourcePods),
    /// The last known pods are to be used, or to be written.
    LastKnown(Ripe),
    /// The node must end a pod before its time.
    Fail(Failure),
    /// A look at the node has ended.
    Swept(Sweep),
    /// Time to look for orphans.
    Housekeeping,
}

enum Outcome {
    Continue,
    Exit,
}

/// What the kubelet leaves behind when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeletReport {
    /// Pods that were running or waiting; their containers go on.
    pub pods_left: usize,
    /// Pods whose end was under way; the next start goes on with it.
    pub pods_ending: usize,
}

/// A worker as the loop sees it.
struct Handle {
    task: Id,
    pod: Arc<Pod>,
    mailbox: Mailbox,
    phase: watch::Receiver<Phase>,
}

/// Namespace of the API's own Service, which the containers of all namespaces are told of.
const API_SERVICE_NAMESPACE: &str = "default";

/// What the loop needs for the pods that do not come from the API.
pub(crate) struct Inputs {
    /// Sources beside the control plane.
    pub(crate) expected: Vec<Source>,
    /// Their lists.
    pub(crate) sources: SourceReceiver,
    /// What the keeper of mirror pods compares.
    pub(crate) mirrors: watch::Sender<mirror::View>,
    /// The door that workers use.
    pub(crate) door: Arc<mirror::Door>,
}

/// The loop.
pub(crate) struct SyncLoop {
    shared: Arc<Shared>,
    control: mpsc::Receiver<Vetted>,
    sources: SourceReceiver,
    failures: mpsc::Receiver<Failure>,
    mirrors: watch::Sender<mirror::View>,
    last_known: LastKnown,
    lifecycle: LifecycleReceiver,
    shutdown: CancellationToken,
    config: PodConfig,
    pods: PodManager,
    workers: HashMap<PodUid, Handle>,
    references: References,
    refusals: Refusals,
    tasks: JoinSet<PodUid>,
    /// Pods of which nothing is left, but whose objects have not gone yet.
    done: HashSet<PodUid>,
    housekeeping: Interval,
    sweeps: JoinSet<Sweep>,
    /// Pods that the runtime held when this program started; later ones are known to be new.
    inherited: Option<HashSet<PodUid>>,
}

impl SyncLoop {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inputs: Inputs,
        control: ControlPlaneReceiver,
        lifecycle: LifecycleReceiver,
        shutdown: CancellationToken,
    ) -> Self {
        let mut housekeeping = tokio::time::interval(shared.limits.housekeeping_period);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let checkpoints = Arc::clone(&shared.doors.checkpoints);
        let failures = shared.keeper.failures();
        Self {
            shared,
            control: vetting::ahead(control),
            sources: inputs.sources,
            failures,
            mirrors: inputs.mirrors,
            last_known: LastKnown::start(checkpoints, inputs.door),
            lifecycle,
            shutdown,
            config: PodConfig::new(inputs.expected),
            pods: PodManager::default(),
            workers: HashMap::new(),
            references: References::default(),
            refusals: Refusals::default(),
            tasks: JoinSet::new(),
            done: HashSet::new(),
            housekeeping,
            sweeps: JoinSet::new(),
            inherited: None,
        }
    }

    pub(crate) async fn run(mut self) -> KubeletReport {
        loop {
            let event = self.next_event().await;
            match self.handle_event(event) {
                Outcome::Continue => (),
                Outcome::Exit => {
                    let report = self.report();
                    let pods = self.pods.of_source(Source::ControlPlane);
                    self.last_known.finish(pods).await;
                    return report;
                }
            }
        }
    }

    /// Waits for the next event. Deaths come before desires: a node that is busy taking orders must
    /// still notice that a container is gone. Desires do not starve: handling a hint is a hash
    /// look-up.
    async fn next_event(&mut self) -> Event {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Event::Shutdown,
            Some(event) = self.lifecycle.recv() => Event::Lifecycle(event),
            Some(joined) = self.tasks.join_next() => match joined {
                Ok(uid) => Event::WorkerDone(uid),
                Err(error) => Event::WorkerLost(error.id()),
            },
            Some(Ok(sweep)) = self.sweeps.join_next() => Event::Swept(sweep),
            Some(failure) = self.failures.recv() => Event::Fail(failure),
            Some(event) = self.control.recv() => Event::Config(event),
            Some(list) = self.sources.recv() => Event::Source(list),
            ripe = self.last_known.next() => Event::LastKnown(ripe),
            _ = self.housekeeping.tick() => Event::Housekeeping,
        }
    }

    fn handle_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Shutdown => return Outcome::Exit,
            Event::Lifecycle(event) => {
                // A pod without a worker is an orphan: housekeeping finds it.
                if let Some(worker) = self.workers.get(&event.pod) {
                    worker.mailbox.hint(event);
                }
            }
            Event::WorkerDone(uid) => self.worker_done(&uid),
            Event::WorkerLost(task) => self.worker_lost(task),
            Event::Fail(failure) => self.fail(failure),
            Event::Config(Vetted { event, found }) => {
                let new = found.into_iter();
                let new = new.filter(|(uid, _)| !self.workers.contains_key(uid));
                new.for_each(|found| self.refusals.keep(found));
                self.configure(event);
            }
            Event::Source(list) => self.take_source(list),
            Event::LastKnown(ripe) => self.last_known(ripe),
            Event::Swept(sweep) => self.swept(sweep),
            Event::Housekeeping => {
                if self.sweeps.is_empty() {
                    self.sweeps.spawn(sweep(Arc::clone(&self.shared)));
                }
            }
        }
        Outcome::Continue
    }

    fn configure(&mut self, event: ControlPlaneEvent) {
        if let ControlPlaneEvent::Referenced(object) = &event {
            self.referenced(object);
            return;
        }
        let full = matches!(event, ControlPlaneEvent::Pods(_));
        if let ControlPlaneEvent::PodRemoved(key) = &event {
            self.done.remove(&key.uid);
            self.refusals.forget(&key.uid);
        }
        let statics = self.pods.static_changes();
        let updates = self.config.take(event, &mut self.pods);
        if full || !updates.is_empty() {
            self.last_known.changed();
        }
        for update in updates {
            self.update(update);
        }
        if full {
            self.after_full_list();
        }
        if full || statics != self.pods.static_changes() {
            self.show_mirrors();
        }
    }

    /// The connection is new: nothing needs to wait, and every status is compared with the API's.
    fn after_full_list(&mut self) {
        self.shared.connected.send_modify(|count| *count += 1);
        for (uid, worker) in &self.workers {
            if let Some(pod) = self.pods.get(uid) {
                let pod = Arc::clone(pod);
                worker.mailbox.tell(|order| {
                    order.pod = pod;
                    order.hurry += 1;
                    order.reconcile += 1;
                });
            }
        }
        // A pod that we were done with is listed again: the control plane has not heard it.
        self.done.clear();
        for pod in self.pods.snapshot() {
            if !self.workers.contains_key(&PodKey::of(&pod).uid) {
                self.update(PodUpdate::Add(pod));
            }
        }
    }

    fn update(&mut self, update: PodUpdate) {
        match update {
            PodUpdate::Add(pod) | PodUpdate::Update(pod) | PodUpdate::Delete(pod) => {
                self.desire(pod, false);
            }
            PodUpdate::Reconcile(pod) => self.desire(pod, true),
            PodUpdate::ShownAnew(pod) => {
                if let Some(worker) = self.workers.get(&PodKey::of(&pod).uid) {
                    worker.mailbox.tell(|order| {
                        order.pod = pod;
                        order.anew += 1;
                    });
                }
            }
            PodUpdate::Remove(key) => {
                self.done.remove(&key.uid);
                self.refusals.forget(&key.uid);
                if let Some(worker) = self.workers.get(&key.uid) {
                    worker.mailbox.tell(|order| order.wish = Wish::Vanish);
                    // The API has given away what it was promised; who comes next must not be
                    // refused for good because this one takes a moment to end.
                    self.shared.keeper.release(&key.uid);
                }
            }
        }
    }

    fn desire(&mut self, pod: Arc<Pod>, reconcile: bool) {
        let uid = PodKey::of(&pod).uid;
        if self.done.contains(&uid) {
            return;
        }
        if !self.workers.contains_key(&uid) {
            if is_static(&pod) && self.is_name_taken(&pod) {
                // Its file was changed: it starts when nothing of its predecessor is left.
                return;
            }
            let wish = self.first_wish(&pod);
            self.start_worker(pod, wish, None);
            return;
        }
        let Some(worker) = self.workers.get_mut(&uid) else {
            return;
        };
        worker.pod = Arc::clone(&pod);
        self.shared.keeper.renew(&pod);
        self.references.note(&pod);
        worker.mailbox.tell(|order| {
            if pod.metadata.deletion_timestamp.is_some() && order.wish != Wish::Vanish {
                order.wish = Wish::Delete;
            }
            order.pod = pod;
            order.reconcile += u64::from(reconcile);
        });
    }

    /// Whether the node takes the pod. What it has taken before, it keeps.
    fn first_wish(&mut self, pod: &Arc<Pod>) -> Wish {
        if pod.metadata.deletion_timestamp.is_some() {
            return Wish::Delete;
        }
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let taken = status.is_some_and(|status| status.start_time.is_some());
        if taken || PodPhase::terminal(phase).is_some() {
            return Wish::Run;
        }
        self.ask_room(pod)
    }

    fn start_worker(&mut self, pod: Arc<Pod>, wish: Wish, pause: Option<Duration>) {
        let uid = PodKey::of(&pod).uid;
        let fresh = self
            .inherited
            .as_ref()
            .is_some_and(|inherited| !inherited.contains(&uid));
        self.note(&pod, &wish);
        self.references.note(&pod);
        let (mailbox, inbox) = mailbox(Arc::clone(&pod), wish);
        let (worker, phase) = Worker::new(Arc::clone(&self.shared), inbox, fresh);
        let work = async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            worker.run().await
        };
        let task = self.tasks.spawn(work).id();
        self.workers.insert(
            uid,
            Handle {
                task,
                pod,
                mailbox,
                phase,
            },
        );
    }

    fn worker_done(&mut self, uid: &PodUid) {
        let Some(worker) = self.workers.remove(uid) else {
            return;
        };
        if let Some(inherited) = &mut self.inherited {
            // Nothing is left of it.
            inherited.remove(uid);
        }
        let mut again = None;
        if let Some(pod) = self.pods.get(uid) {
            if worker.mailbox.wish() == Wish::Vanish {
                // It went, and came back before it was over.
                again = Some(Arc::clone(pod));
            } else {
                self.done.insert(uid.clone());
            }
        }
        let orphans = self.references.remove(uid);
        let control_plane = &self.shared.doors.control_plane;
        for object in &orphans.objects {
            control_plane.forget(object);
        }
        if let Some(namespace) = orphans.namespace
            && namespace != API_SERVICE_NAMESPACE
        {
            control_plane.forget_services(&namespace);
        }
        if let Some(pod) = again {
            self.desire(pod, false);
        }
        let name = full_name(&worker.pod);
        self.start_successor(&name);
    }

    /// A bug in one pod's worker costs the others nothing: the pod gets a new worker, which asks
    /// the runtime for everything.
    fn worker_lost(&mut self, task: Id) {
        let lost = self.workers.iter().find(|(_, worker)| worker.task == task);
        let Some(uid) = lost.map(|(uid, _)| uid.clone()) else {
            return;
        };
        tracing::error!(%uid, "a pod's worker has panicked; it is started anew");
        let Some(worker) = self.workers.remove(&uid) else {
            return;
        };
        if let Some(inherited) = &mut self.inherited {
            inherited.insert(uid.clone());
        }
        let pod = self.pods.get(&uid).map_or(worker.pod, Arc::clone);
        let wish = match (
            self.pods.get(&uid),
            pod.metadata.deletion_timestamp.is_some(),
        ) {
            (None, _) => Wish::Vanish,
            (Some(_), true) => Wish::Delete,
            // A pod that the node has not taken, or ends, does not run after all.
            (Some(_), false) => worker.mailbox.wish(),
        };
        self.start_worker(pod, wish, Some(PANIC_PAUSE));
    }

    fn referenced(&mut self, object: &ObjectRef) {
        if object.kind == RefKind::Node {
            self.shared.keeper.node_changed();
        }
        for uid in self.references.users(object) {
            if let Some(worker) = self.workers.get(uid) {
                worker.mailbox.tell(|order| order.referenced += 1);
            }
        }
    }

    /// Ends what nobody wants, once it is known what is wanted.
    fn swept(&mut self, mut sweep: Sweep) {
        if let Some(running) = sweep.running.take() {
            self.shared.running_logs.send_replace(Arc::new(running));
        }
        if let (None, Some(held)) = (&self.inherited, &sweep.in_runtime) {
            self.inherited = Some(held.iter().cloned().collect());
        }
        if !self.config.is_synced() {
            return;
        }
        let (pods, workers) = (&self.pods, &self.workers);
        let is_there = |uid: &PodUid| pods.get(uid).is_some() || workers.contains_key(uid);
        self.shared.cpus.retain(is_there);
        for (uid, key) in sweep.found {
            if self.pods.get(&uid).is_none() && !self.workers.contains_key(&uid) {
                tracing::info!(pod = %key, "nobody wants this pod: it is ended");
                // It may have come into being while the list was made: never call it new.
                if let Some(inherited) = &mut self.inherited {
                    inherited.insert(uid);
                }
                self.start_worker(stand_in(key), Wish::Vanish, None);
            }
        }
    }

    fn report(&self) -> KubeletReport {
        let ending = self
            .workers
            .values()
            .filter(|worker| matches!(*worker.phase.borrow(), Phase::Terminating(_)));
        let pods_ending = ending.count();
        KubeletReport {
            pods_left: self.workers.len() - pods_ending,
            pods_ending,
        }
    }
}
