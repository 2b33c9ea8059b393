//! `spec.activeDeadlineSeconds`: how long a pod may be active on its node. The rules are those of
//! `pkg/kubelet/active_deadline.go`.

use std::time::{Duration, Instant};

use swiftlet_model::events::{DEADLINE_EXCEEDED, EventKind};

use crate::pod_worker::Worker;
use crate::pod_worker::phase::{Cause, Phase};
use crate::status::failure::PodFailure;

/// `status.message` of such a pod, and the Event's.
const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

impl Worker {
    /// When the pod's time is over: counted from `status.startTime`, so that a restart of this
    /// program does not make it longer.
    pub(super) fn active_deadline(&self, now: Instant) -> Option<Instant> {
        let seconds = self.order.pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.publisher.newest().start_time.as_ref()?.0;
        let active = self.shared.doors.clock.timestamp().duration_since(started);
        let active = Duration::try_from(active).unwrap_or_default();
        let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Some(now + allowed.saturating_sub(active)).filter(|_| self.phase == Phase::Sync)
    }

    /// Ends the pod if its time is over; true if it is.
    pub(super) fn deadline_pass(&mut self, now: Instant) -> bool {
        let Some(at) = self.active_deadline(now) else {
            return false;
        };
        if now < at {
            self.look.at(at);
            return false;
        }
        self.tell(
            None,
            EventKind::Normal,
            DEADLINE_EXCEEDED,
            MESSAGE.to_owned(),
        );
        self.fail(PodFailure {
            reason: DEADLINE_EXCEEDED.to_owned(),
            message: MESSAGE.to_owned(),
            ..PodFailure::default()
        });
        true
    }

    /// The node ends the pod. The first reason stays.
    pub(super) fn fail(&mut self, failure: PodFailure) {
        if matches!(self.phase, Phase::Terminated(_) | Phase::Finished) {
            // It is over, and why has been said.
            return;
        }
        let grace = failure.grace.unwrap_or_else(|| self.grace());
        self.failure.get_or_insert(failure);
        self.end(Cause::Failed, self.now() + grace);
    }
}
