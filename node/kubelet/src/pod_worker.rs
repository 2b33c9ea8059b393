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
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::lifecycle::{LifecycleKind, LifecycleSource, PodLifecycleEvent};
use swiftlet_model::runtime::{RuntimePod, SandboxState};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::config::grace_period_s;
use crate::kuberuntime::execute::Answer;
use crate::pod_worker::lanes::{Lane, Lanes};
use crate::pod_worker::phase::{Cause, Ending, Phase, Step};
use crate::pod_worker::queue::{Inbox, Mail, Order, Wish};
use crate::pod_worker::view::View;
use crate::shared::Shared;
use crate::status::phase::PodPhase;
use crate::status::publish::Publisher;
use crate::timeline::{TimelinePhase, TimelineRecord};

mod answers;
pub(crate) mod lanes;
pub(crate) mod phase;
pub(crate) mod queue;
mod show;
mod sync;
mod terminate;
pub(crate) mod view;

/// A worker's own statuses come back from the API within this time.
const ECHO_LIMIT: Duration = Duration::from_secs(10);
/// Containers always get this long between SIGTERM and SIGKILL (`minimumGracePeriodInSeconds`).
const GRACE_MIN: Duration = Duration::from_secs(2);
/// A worker that is due but may not act yet does not spin.
const NAP_MIN: Duration = Duration::from_millis(1);
/// A worker with nothing to wait for looks again after this time.
const IDLE: Duration = Duration::from_hours(1);

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
    view: View,
    lanes: Lanes,
    publisher: Publisher,
    /// How often the grace period has been shortened.
    stops: u32,
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
}

/// What wakes a worker.
enum Wake {
    Mail(Mail),
    Answer(Lane, Answer),
    Time,
    /// The runtime answers again.
    RuntimeBack,
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
        let mut view = View::new(key.clone());
        view.history.seed(&status);
        if fresh {
            let nothing = RuntimePod::empty(key.clone());
            view.queried(nothing, shared.doors.clock.timestamp());
        }
        let publisher = Publisher::new(status, shared.doors.clock.now());
        let runtime_back = shared.runtime_back.subscribe();
        let worker = Self {
            shared,
            runtime_back,
            key,
            inbox,
            order,
            phase: Phase::Sync,
            phase_out,
            ending: CancellationToken::new(),
            view,
            lanes: Lanes::default(),
            publisher,
            stops: 0,
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
                Wake::Mail(Mail::Order(order)) => self.obey(order),
                Wake::Answer(lane, answer) => self.answer(lane, answer),
                Wake::Time => {}
                Wake::RuntimeBack => self.lanes.hurry(|_| true, self.now()),
                Wake::Closed => break,
            }
            self.pass();
        }
        self.key.uid
    }

    fn begin(&mut self) {
        self.record(
            TimelinePhase::Received,
            None,
            self.shared.doors.clock.timestamp(),
        );
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
        let until = self.due().saturating_duration_since(now).max(NAP_MIN);
        let (inbox, lanes) = (&mut self.inbox, &mut self.lanes);
        let runtime_back = &mut self.runtime_back;
        tokio::select! {
            biased;
            mail = inbox.next() => mail.map_or(Wake::Closed, Wake::Mail),
            (lane, answer) = lanes.next() => Wake::Answer(lane, answer),
            Ok(()) = runtime_back.changed() => Wake::RuntimeBack,
            () = tokio::time::sleep(until) => Wake::Time,
        }
    }

    /// When there is something to do without being told.
    fn due(&self) -> Instant {
        let now = self.now();
        let crash = self
            .view
            .backing_off
            .iter()
            .map(|back| now + back.left)
            .min();
        // While the runtime is asked for everything, single records wait.
        let asks = self.view.known && !self.view.stale && !self.lanes.is_busy(&Lane::Query);
        let recording = self.lanes.any_busy(|lane| matches!(lane, Lane::Record(_)));
        let record = self
            .view
            .record_at()
            .filter(|at| asks && (*at > now || !recording));
        let publish = self.publisher.due().filter(|_| self.may_publish());
        let all = [self.lanes.due(now), publish, crash, record];
        all.into_iter().flatten().min().unwrap_or(now + IDLE)
    }

    /// One pass: decide and launch, until the phase stays the same.
    fn pass(&mut self) {
        loop {
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
        self.show();
    }

    /// Takes a step, if the phase has it.
    fn step(&mut self, step: Step) {
        match self.phase.after(step) {
            Ok(phase) if phase != self.phase => {
                if let (Some(before), Some(after)) = (self.phase.ending(), phase.ending()) {
                    self.stops += u32::from(after.deadline < before.deadline);
                }
                self.phase = phase;
                if phase != Phase::Sync {
                    self.ending.cancel();
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

    fn obey(&mut self, order: Order) {
        let now = self.now();
        let before = std::mem::replace(&mut self.order, order);
        if self.order.requery != before.requery {
            self.view.stale = true;
        }
        if self.order.hurry != before.hurry {
            self.publisher.hurry();
            let waits = |lane: &Lane| {
                matches!(
                    lane,
                    Lane::PodGone | Lane::Volumes | Lane::Create(_) | Lane::Refresh
                )
            };
            self.lanes.hurry(waits, now);
        }
        if self.order.referenced != before.referenced {
            self.lanes
                .hurry(|lane| matches!(lane, Lane::Create(_) | Lane::Volumes), now);
            self.view.refresh = true;
        }
        if self.order.reconcile != before.reconcile {
            let shown = self.order.pod.status.clone().unwrap_or_default();
            self.publisher.overwritten(&shown, now, ECHO_LIMIT);
        }
        let wish = self.order.wish.clone();
        self.follow(&wish, false);
    }

    /// Does what is wanted of the pod. `first`: this worker sees the pod for the first time.
    fn follow(&mut self, wish: &Wish, first: bool) {
        let now = self.now();
        match wish {
            Wish::Run => {}
            Wish::Reject(_) => self.end(Cause::Rejected, now),
            Wish::Delete => {
                let deadline = self.deletion_deadline(first);
                self.end(Cause::Deleted, deadline);
            }
            Wish::Vanish => {
                let grace = u64::try_from(grace_period_s(self.pod())).unwrap_or_default();
                self.end(Cause::Vanished, now + Duration::from_secs(grace));
            }
        }
    }

    /// The end of the grace period. `deletionTimestamp` is that end by the clock of the API; it is
    /// used only if the deletion may have been seen before by an earlier run of this program.
    fn deletion_deadline(&self, first: bool) -> Instant {
        let meta = &self.order.pod.metadata;
        let grace = meta.deletion_grace_period_seconds;
        let grace = grace.unwrap_or_else(|| grace_period_s(self.pod()));
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let left = meta
            .deletion_timestamp
            .as_ref()
            .filter(|_| first)
            .map(|end| {
                let left = end.0.duration_since(self.shared.doors.clock.timestamp());
                Duration::try_from(left).unwrap_or_default().max(GRACE_MIN)
            });
        self.now() + left.map_or(grace, |left| left.min(grace))
    }

    fn hint(&mut self, event: &PodLifecycleEvent) {
        let now = self.now();
        match &event.kind {
            LifecycleKind::Changed => self.view.stale = true,
            LifecycleKind::ContainerStarted { container } => {
                let name = self.view.container(container).map(|one| one.name.clone());
                if let Some(name) = name {
                    self.view.started(container, event.at);
                    if event.source == LifecycleSource::Kernel {
                        self.record(TimelinePhase::ContainerStarted, Some(name), event.at);
                    }
                } else if !self.lanes.is_making() {
                    // What is being made may start before its id is known; this is not that.
                    self.view.stale |= self.view.sandbox(&container.as_str().into()).is_none();
                }
            }
            LifecycleKind::ContainerDied { container, exit } => {
                let id = container.as_str().into();
                if let Some(sandbox) = self.view.sandbox(&id) {
                    sandbox.state = SandboxState::NotReady;
                } else if self.view.container(container).is_none() {
                    self.view.stale = true;
                } else if self.view.died(container, *exit, event.at, now) {
                    let name = self.view.container(container).map(|one| one.name.clone());
                    self.record(TimelinePhase::ContainerDied, name, event.at);
                }
            }
        }
    }

    fn record(
        &self,
        phase: TimelinePhase,
        container: Option<swiftlet_model::ids::ContainerName>,
        at: jiff::Timestamp,
    ) {
        let pod = self.key.clone();
        self.shared.timeline.record(TimelineRecord {
            pod,
            container,
            phase,
            at,
        });
    }
}
