//! What the sync loop tells a worker: orders and hints.

use std::time::{Duration, Instant};

use swiftlet_model::lifecycle::{LifecycleKind, LifecycleSource, PodLifecycleEvent};
use swiftlet_model::runtime::SandboxState;

use crate::kuberuntime::config::grace_period_s;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::{Cause, Phase};
use crate::pod_worker::queue::{Order, Wish};
use crate::pod_worker::{GRACE_MIN, Worker};
use crate::timeline::TimelinePhase;
use crate::volumes::shows_change;

impl Worker {
    pub(super) fn obey(&mut self, order: Order) {
        let now = self.now();
        let before = std::mem::replace(&mut self.order, order);
        self.view.refresh |= shows_change(&before.pod, &self.order.pod);
        if self.order.requery != before.requery {
            self.view.stale = true;
        }
        if self.order.hurry != before.hurry {
            self.publisher.hurry();
            let waits = |lane: &Lane| {
                matches!(
                    lane,
                    Lane::PodGone
                        | Lane::Volumes
                        | Lane::Sandbox
                        | Lane::Configure(_)
                        | Lane::Create(_)
                        | Lane::Refresh
                )
            };
            self.lanes.hurry(waits, now);
            // What was told before there was a connection has been heard by nobody.
            self.view.refresh |= self.tell_lacking();
        }
        if self.order.referenced != before.referenced {
            let names_it = |lane: &Lane| {
                matches!(
                    lane,
                    Lane::Create(_)
                        | Lane::Configure(_)
                        | Lane::Volumes
                        | Lane::Image(..)
                        | Lane::Sandbox
                )
            };
            self.lanes.hurry(names_it, now);
            self.view.early.clear();
            self.view.refresh = true;
        }
        if self.order.reconcile != before.reconcile {
            let shown = self.order.pod.status.clone().unwrap_or_default();
            self.publisher.overwritten(shown);
        }
        if self.order.anew != before.anew {
            let shown = self.order.pod.status.clone().unwrap_or_default();
            self.publisher.anew(shown, now);
        }
        self.resizing.look(&self.order.pod);
        let wish = self.order.wish.clone();
        self.follow(&wish, false);
    }

    /// Does what is wanted of the pod. `first`: this worker sees the pod for the first time.
    pub(super) fn follow(&mut self, wish: &Wish, first: bool) {
        let now = self.now();
        match wish {
            Wish::Run => {}
            Wish::Reject(_) => self.end(Cause::Rejected, now),
            Wish::Fail(failure) => self.fail(failure.clone()),
            Wish::Delete => {
                let deadline = self.deletion_deadline(first);
                self.end(Cause::Deleted, deadline);
            }
            Wish::Vanish => {
                self.end(Cause::Vanished, now + self.grace());
            }
        }
        // The weakest cause: why it ends stays, only the deadline comes nearer.
        if let (Some(end), Phase::Terminating(_)) = (self.order.end_by, self.phase) {
            self.end(Cause::Rejected, end);
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

    pub(super) fn hint(&mut self, event: &PodLifecycleEvent) {
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
}
