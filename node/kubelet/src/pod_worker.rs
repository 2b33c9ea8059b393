//! One task per pod: the only one that changes the pod on this node.
//!
//! A worker holds what it knows ([`view`]), decides what is to be done ([`sync`], [`terminate`])
//! and has the calls in flight ([`lanes`]). It never waits for a call: whatever comes first, a hint
//! of the kernel, an answer, an order or the time, changes what is known, and then the next pass
//! decides anew.
//!
//! ```text
//!   hint ─┐
//! answer ─┼─▶ view ─▶ pass: decide (pure) ─▶ launch calls ─▶ wait ─▶ …
//!  order ─┤
//!   time ─┘
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::{ContainerName, PodKey, PodUid};
use swiftlet_model::pod_board::Place;
use swiftlet_model::runtime::RuntimePod;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::execute::Answer;
use crate::node_status::NodeFacts;
use crate::pod_worker::lanes::{Lane, Lanes};
use crate::pod_worker::look::Look;
use crate::pod_worker::phase::{Cause, Ending, Phase, Step};
use crate::pod_worker::queue::{Inbox, Mail, Order, PodFailure};
use crate::pod_worker::resizing::Resizing;
use crate::pod_worker::view::View;
use crate::shared::Shared;
use crate::status::phase::PodPhase;
use crate::status::publish::Publisher;
use crate::timeline::{TimelinePhase, TimelineRecord};

mod answers;
mod deadline;
mod hooks;
mod hosts;
pub(crate) mod lanes;
mod look;
mod orders;
pub(crate) mod phase;
mod probing;
pub(crate) mod queue;
mod resizing;
mod show;
mod start;
pub(crate) mod stop;
mod sync;
mod terminate;
pub(crate) mod view;

/// Containers always get this long between SIGTERM and SIGKILL (`minimumGracePeriodInSeconds`).
const GRACE_MIN: Duration = Duration::from_secs(2);
/// A worker that is due but may not act yet does not spin.
const NAP_MIN: Duration = Duration::from_millis(1);
/// A worker with nothing to wait for looks again after this time (kubelet's `syncFrequency`).
const IDLE: Duration = Duration::from_mins(1);

/// A pod's worker.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    key: PodKey,
    inbox: Inbox,
    order: Order,
    phase: Phase,
    /// The phase as the sync loop sees it.
    phase_out: watch::Sender<Phase>,
    /// Cancelled when the pod begins to end: nothing is made after that.
    ending: CancellationToken,
    /// Grows when the runtime answers again.
    runtime_back: watch::Receiver<u64>,
    /// Grows when the disk is full: what the runtime keeps of pods that have ended must go.
    reclaim: watch::Receiver<u64>,
    /// Changes with the node's addresses, among others.
    node: watch::Receiver<NodeFacts>,
    view: View,
    lanes: Lanes,
    /// When the last pass wants the next one.
    look: Look,
    publisher: Publisher,
    /// Where the node's server sees the pod.
    place: Place,
    /// Why the node ends the pod; the first reason stays.
    failure: Option<PodFailure>,
    /// What it is promised, and what it has.
    resizing: Resizing,
    /// What has been cleaned up.
    cleaned: Cleaned,
}

/// What has been cleaned up of a terminated pod.
#[derive(Debug, Default)]
struct Cleaned {
    volumes: bool,
    logs: bool,
    cgroup: bool,
    said: bool,
    /// The runtime shall keep nothing of it any more.
    reclaiming: bool,
}

/// What wakes a worker.
enum Wake {
    Mail(Mail),
    Answer(Lane, Answer),
    Time,
    /// The runtime answers again.
    RuntimeBack,
    /// Resources may be shared out anew.
    Resources,
    /// The node has changed.
    Node,
    /// The disk is full.
    Reclaim,
    /// The sync loop is gone.
    Closed,
}

impl Worker {
    /// A worker for a pod. `fresh`: the runtime is known to hold nothing of it.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut inbox: Inbox,
        fresh: bool,
    ) -> (Self, watch::Receiver<Phase>) {
        let order = inbox.order();
        let key = PodKey::of(&order.pod);
        let (phase_out, phase) = watch::channel(Phase::Sync);
        let status = order.pod.status.clone().unwrap_or_default();
        let longest = shared.limits.crash_loop_backoff_max;
        let mut view = View::new(key.clone(), shared.doors.clock.timestamp(), longest);
        view.history.seed(&status);
        view.probes.seed(&status);
        if fresh {
            let nothing = RuntimePod::empty(key.clone());
            view.queried(nothing, shared.doors.clock.timestamp());
        }
        let publisher = Publisher::new(status, shared.doors.clock.now());
        let place = Place::new(Arc::clone(&shared.board), key.clone());
        let runtime_back = shared.runtime_back.subscribe();
        let (reclaim, node) = (shared.keeper.dead.orders(), shared.node.clone());
        let resizing = Resizing::new(&shared, &order.pod);
        let worker = Self {
            shared,
            runtime_back,
            reclaim,
            node,
            key,
            inbox,
            order,
            phase: Phase::Sync,
            phase_out,
            ending: CancellationToken::new(),
            view,
            lanes: Lanes::default(),
            look: Look::default(),
            publisher,
            place,
            failure: None,
            resizing,
            cleaned: Cleaned::default(),
        };
        (worker, phase)
    }

    /// Works until nothing is left of the pod, or the sync loop is gone.
    pub(crate) async fn run(mut self) -> PodUid {
        self.begin();
        while self.phase != Phase::Finished {
            match self.wait().await {
                Wake::Mail(Mail::Hint(event)) => self.hint(&event),
                Wake::Mail(Mail::Order(order)) => self.obey(*order),
                Wake::Answer(lane, answer) => self.answer(lane, answer),
                Wake::Time | Wake::Resources | Wake::Node => {}
                Wake::Reclaim => self.begin_reclaim(),
                Wake::RuntimeBack => self.lanes.hurry(|_| true, self.now()),
                Wake::Closed => break,
            }
            self.pass();
        }
        self.key.uid
    }

    fn begin(&mut self) {
        self.reached(TimelinePhase::Received, None);
        let status = self.order.pod.status.as_ref();
        let over = PodPhase::terminal(status.and_then(|status| status.phase.as_deref()));
        if over.is_some() {
            // It ended before this program was started: it must not start again.
            self.end(Cause::Completed, self.now());
        }
        let first = self.order.clone();
        self.follow(&first.wish, true);
        self.pass();
    }

    fn now(&self) -> Instant {
        self.shared.doors.clock.now()
    }

    fn pod(&self) -> &Arc<Pod> {
        &self.order.pod
    }

    /// Waits for what comes first: deaths, then answers, then desires.
    async fn wait(&mut self) -> Wake {
        let now = self.now();
        let until = self
            .look
            .next()
            .map_or(IDLE, |at| at.saturating_duration_since(now));
        let until = until.clamp(NAP_MIN, IDLE);
        let (inbox, lanes) = (&mut self.inbox, &mut self.lanes);
        let (runtime_back, reclaim) = (&mut self.runtime_back, &mut self.reclaim);
        let node = &mut self.node;
        let resizing = &mut self.resizing;
        tokio::select! {
            biased;
            mail = inbox.next() => mail.map_or(Wake::Closed, Wake::Mail),
            (lane, answer) = lanes.next() => Wake::Answer(lane, answer),
            Ok(()) = runtime_back.changed() => Wake::RuntimeBack,
            () = resizing.news() => Wake::Resources,
            Ok(()) = reclaim.changed() => Wake::Reclaim,
            Ok(()) = node.changed() => Wake::Node,
            () = tokio::time::sleep(until) => Wake::Time,
        }
    }

    /// One pass: decide and launch, until the phase stays the same. Its parts say when they want
    /// the next one.
    fn pass(&mut self) {
        self.lanes.take_look();
        loop {
            self.look = Look::default();
            self.view.absorb();
            let before = self.phase;
            match self.phase {
                Phase::Sync => self.sync_pass(),
                Phase::Terminating(ending) => self.terminating_pass(ending),
                Phase::Terminated(ending) => self.terminated_pass(ending),
                Phase::Finished => return,
            }
            if self.phase == before {
                break;
            }
        }
        self.probe_pass();
        self.show();
        let calls = self.lanes.take_look();
        self.look.maybe(calls.next());
    }

    /// Takes a step, if the phase has it.
    fn step(&mut self, step: Step) {
        match self.phase.after(step) {
            Ok(phase) if phase != self.phase => {
                self.phase = phase;
                if phase != Phase::Sync {
                    self.ending.cancel();
                }
                if !phase.is_active() {
                    self.shared.keeper.release(&self.key.uid);
                    self.shared.cpus.release(&self.key.uid);
                }
                self.phase_out.send_replace(phase);
            }
            Ok(_) => {}
            Err(refused) => tracing::warn!(pod = %self.key, %refused, "step refused"),
        }
    }

    fn end(&mut self, cause: Cause, deadline: Instant) {
        if self.phase != Phase::Finished {
            self.step(Step::End(Ending { cause, deadline }));
        }
    }

    /// Records a step of this moment.
    fn reached(&self, phase: TimelinePhase, container: Option<ContainerName>) {
        self.record(phase, container, self.shared.doors.clock.timestamp());
    }

    fn record(&self, phase: TimelinePhase, container: Option<ContainerName>, at: jiff::Timestamp) {
        let pod = self.key.clone();
        self.shared.timeline.record(TimelineRecord {
            pod,
            container,
            phase,
            at,
        });
    }
}
