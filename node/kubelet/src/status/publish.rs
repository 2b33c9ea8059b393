//! The status on its way to the control plane: the newest one wins, one at a time per pod, repeated
//! until it is acknowledged. Many pods publish at the same time; what must be seen at once has its
//! own lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::Semaphore;

use crate::kuberuntime::backoff;
use crate::status::urgent::is_urgent;

/// Urgent statuses in flight per node: phase, readiness, starts and ends.
const URGENT_IN_FLIGHT_MAX: usize = 256;
/// Other statuses in flight per node.
const ORDINARY_IN_FLIGHT_MAX: usize = 16;
/// How long an ordinary change waits for the next one. A pod that starts within this time is
/// published once, Running and Ready.
pub const ORDINARY_DELAY: Duration = Duration::from_millis(200);
/// A pod's own statuses come back from the API within this time.
const ECHO_LIMIT: Duration = Duration::from_secs(10);

/// The node's two lanes to the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    urgent: Arc<Semaphore>,
    ordinary: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            urgent: Arc::new(Semaphore::new(URGENT_IN_FLIGHT_MAX)),
            ordinary: Arc::new(Semaphore::new(ORDINARY_IN_FLIGHT_MAX)),
        }
    }

    /// The lane for a status.
    pub(crate) fn lane(&self, urgent: bool) -> Arc<Semaphore> {
        Arc::clone(if urgent { &self.urgent } else { &self.ordinary })
    }
}

/// One pod's statuses. Holds no synchronisation: its worker owns it.
#[derive(Debug)]
pub(crate) struct Publisher {
    /// What the API shows.
    shown: PodStatus,
    /// What it should show, if it differs.
    wanted: Option<PodStatus>,
    /// Since when an ordinary change waits.
    since: Instant,
    in_flight: bool,
    /// The object that the status in flight is for exists no more.
    lost: bool,
    failures: u32,
    not_before: Option<Instant>,
    /// When the API last acknowledged something.
    acknowledged_at: Option<Instant>,
    /// What came back from the API last, if it is not what was stored last.
    seen: Option<PodStatus>,
}

impl Publisher {
    /// A publisher for a pod of which the API shows `shown`.
    pub(crate) fn new(shown: PodStatus, now: Instant) -> Self {
        Self {
            shown,
            wanted: None,
            since: now,
            in_flight: false,
            lost: false,
            failures: 0,
            not_before: None,
            acknowledged_at: None,
            seen: None,
        }
    }

    /// The newest status, whether stored or not.
    pub(crate) fn newest(&self) -> &PodStatus {
        self.wanted.as_ref().unwrap_or(&self.shown)
    }

    /// Wants this status to be shown.
    pub(crate) fn want(&mut self, status: PodStatus, now: Instant) {
        if status == self.shown && !self.in_flight {
            self.wanted = None;
            return;
        }
        if self.wanted.is_none() {
            self.since = now;
        }
        self.wanted = Some(status);
    }

    /// What to send now, and whether it is urgent.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(PodStatus, bool)> {
        let status = self.wanted.as_ref().filter(|_| !self.in_flight)?;
        if self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        let urgent = is_urgent(&self.shown, status);
        if !urgent && now < self.since + ORDINARY_DELAY {
            return None;
        }
        self.in_flight = true;
        Some((status.clone(), urgent))
    }

    /// When [`Self::take`] may have something.
    pub(crate) fn due(&self) -> Option<Instant> {
        let waits = self.wanted.is_some() && !self.in_flight;
        let ordinary = self.since + ORDINARY_DELAY;
        let send = waits.then(|| self.not_before.map_or(ordinary, |at| at.max(ordinary)));
        send.into_iter().chain(self.repair_at()).min()
    }

    /// The control plane has stored it, or refused it for good.
    pub(crate) fn acknowledged(&mut self, status: PodStatus, now: Instant) {
        self.in_flight = false;
        if std::mem::take(&mut self.lost) {
            return;
        }
        self.failures = 0;
        self.not_before = None;
        self.acknowledged_at = Some(now);
        if self.wanted.as_ref() == Some(&status) {
            self.wanted = None;
        }
        self.shown = status;
    }

    /// The API has a new object, which shows nothing of what was stored in the one before.
    pub(crate) fn anew(&mut self, shown: PodStatus, now: Instant) {
        let newest = self.newest().clone();
        self.lost = self.in_flight;
        self.not_before = None;
        self.seen = None;
        self.wanted = (newest != shown || self.in_flight).then_some(newest);
        self.since = now;
        self.shown = shown;
    }

    /// It has not been stored.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.in_flight = false;
        self.lost = false;
        self.failures += 1;
        self.not_before = Some(now + backoff::retry(self.failures));
    }

    /// The connection is back: no need to wait.
    pub(crate) fn hurry(&mut self) {
        self.not_before = None;
    }

    /// The API shows this status. It is an own one that comes back, or someone else's: what differs
    /// once the last own one must have come back is not ours.
    pub(crate) fn overwritten(&mut self, shown: PodStatus) {
        self.seen = (self.in_flight || shown != self.shown).then_some(shown);
    }

    /// Wants the own status again where someone else's stands.
    pub(crate) fn repair(&mut self, now: Instant) {
        if self.in_flight || self.repair_at().is_some_and(|at| now < at) {
            return;
        }
        if let Some(seen) = self.seen.take().filter(|seen| *seen != self.shown) {
            let wanted = self.newest().clone();
            self.shown = seen;
            self.want(wanted, now);
        }
    }

    /// When [`Self::repair`] may have something, if that is not now.
    fn repair_at(&self) -> Option<Instant> {
        let waits = !self.in_flight && self.seen.is_some();
        self.acknowledged_at
            .filter(|_| waits)
            .map(|at| at + ECHO_LIMIT)
    }

    /// Whether everything has been stored.
    pub(crate) fn is_settled(&self) -> bool {
        self.wanted.is_none() && !self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saying(message: &str) -> PodStatus {
        PodStatus {
            message: Some(message.to_owned()),
            ..PodStatus::default()
        }
    }

    /// A publisher whose status `own` has just been stored.
    fn stored(now: Instant) -> Publisher {
        let mut publisher = Publisher::new(PodStatus::default(), now);
        publisher.want(saying("own"), now);
        let later = now + ORDINARY_DELAY;
        let (status, _) = publisher.take(later).expect("it is due");
        publisher.acknowledged(status, now);
        publisher
    }

    #[test]
    fn what_someone_else_wrote_right_after_an_own_status_is_repaired() {
        let now = Instant::now();
        let mut publisher = stored(now);
        publisher.overwritten(saying("foreign"));
        publisher.repair(now);
        assert!(
            publisher.is_settled(),
            "it may be an own one that comes back"
        );
        assert_eq!(publisher.due(), Some(now + ECHO_LIMIT));
        publisher.repair(now + ECHO_LIMIT);
        let (again, _) = publisher
            .take(now + ECHO_LIMIT + ORDINARY_DELAY)
            .expect("repaired");
        assert_eq!(again, saying("own"));
    }

    #[test]
    fn an_own_status_that_comes_back_changes_nothing() {
        let now = Instant::now();
        let mut publisher = stored(now);
        publisher.overwritten(saying("older"));
        publisher.overwritten(saying("own"));
        publisher.repair(now + ECHO_LIMIT);
        assert!(publisher.is_settled());
        assert_eq!(publisher.due(), None);
    }

    #[test]
    fn an_own_status_that_comes_back_before_it_is_acknowledged_changes_nothing() {
        let now = Instant::now();
        let mut publisher = stored(now);
        publisher.want(saying("newer"), now);
        let (status, _) = publisher.take(now + ORDINARY_DELAY).expect("it is due");
        publisher.overwritten(saying("newer"));
        publisher.acknowledged(status, now);
        publisher.repair(now + ECHO_LIMIT);
        assert!(publisher.is_settled());
    }
}
