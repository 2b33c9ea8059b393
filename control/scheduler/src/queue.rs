//! Pods that wait for a node.
//!
//! ```text
//!             add                       pop
//!    (none) ───────▶ Active ────────────────────▶ one attempt ──▶ (bound: none)
//!                     ▲  ▲                        │         │ no node fits
//!     back-off is over│  │event, back-off over    │error    ▼
//!                     │  └──────────────── Unschedulable ◀──┘
//!                  Backoff ◀───────────────────────┘ │ event, back-off not yet over
//!                     ▲──────────────────────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::Object;
use swiftlet_client::backoff::delay_after;
use tokio::time::Instant;

use crate::filter::VOLUME_BINDING;

/// First back-off of a pod (Kubernetes' `podInitialBackoffSeconds`).
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// Longest back-off of a pod (`podMaxBackoffSeconds`).
const BACKOFF_MOST: Duration = Duration::from_secs(10);
/// How long a pod stays unschedulable without any event (`podMaxInUnschedulablePodsDuration`).
const UNSCHEDULABLE_MOST: Duration = Duration::from_mins(5);

/// Something that may make an unschedulable pod schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterEvent {
    /// A node came or changed.
    Node,
    /// A pod left a node.
    PodGone,
    /// A claim, a volume or a class of them changed.
    Volume,
}

#[derive(Default)]
pub(crate) struct SchedulingQueue {
    pods: HashMap<String, Queued>,
    active: BTreeMap<ActiveKey, String>,
    backoff: BTreeSet<(Instant, String)>,
    unschedulable: BTreeSet<(Instant, String)>,
    sequence: u64,
}

/// High priority first, then first come, first served.
type ActiveKey = (Reverse<i32>, u64);

struct Queued {
    pod: Arc<Pod>,
    attempts: u32,
    state: QueueState,
}

enum QueueState {
    Active(ActiveKey),
    Backoff {
        until: Instant,
    },
    Unschedulable {
        since: Instant,
        plugins: Vec<&'static str>,
    },
}

/// A pod that has been taken out for one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) pod: Arc<Pod>,
    /// Counts from one.
    pub(crate) number: u32,
}

impl SchedulingQueue {
    /// A pod without a node appeared or changed.
    pub(crate) fn add(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid().to_owned();
        let Some(known) = self.pods.remove(&uid) else {
            self.activate(pod, 0);
            return;
        };
        // Our own status update must not bring the pod back.
        let same = known.pod.spec == pod.spec && known.pod.metadata.labels == pod.metadata.labels;
        if same || matches!(known.state, QueueState::Active(_)) {
            self.pods.insert(uid, Queued { pod, ..known });
        } else {
            self.detach(&uid, &known.state);
            self.activate(pod, known.attempts);
        }
    }

    /// The pod is gone, or has a node.
    pub(crate) fn remove(&mut self, uid: &str) {
        if let Some(queued) = self.pods.remove(uid) {
            self.detach(uid, &queued.state);
        }
    }

    pub(crate) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Takes the next pod out.
    pub(crate) fn pop(&mut self) -> Option<Attempt> {
        let (_, uid) = self.active.pop_first()?;
        let queued = self.pods.remove(&uid)?;
        Some(Attempt {
            pod: queued.pod,
            number: queued.attempts + 1,
        })
    }

    /// No node fits: wait for an event that the rejecting plugins care for.
    pub(crate) fn unschedulable(
        &mut self,
        attempt: Attempt,
        plugins: Vec<&'static str>,
        now: Instant,
    ) {
        let uid = attempt.pod.uid().to_owned();
        self.unschedulable.insert((now, uid.clone()));
        let state = QueueState::Unschedulable {
            since: now,
            plugins,
        };
        self.pods.insert(
            uid,
            Queued {
                pod: attempt.pod,
                attempts: attempt.number,
                state,
            },
        );
    }

    /// Something else went wrong: try again after the back-off.
    pub(crate) fn failed(&mut self, attempt: Attempt, now: Instant) {
        let until = now + backoff_of(attempt.number);
        self.back_off(attempt.pod, attempt.number, until);
    }

    /// Moves the pods that an event may help.
    pub(crate) fn on_event(&mut self, event: ClusterEvent, now: Instant) {
        let helped = |uid: &String| {
            self.pods
                .get(uid)
                .is_some_and(|pod| pod.is_helped_by(event))
        };
        let uids: Vec<String> = self
            .unschedulable
            .iter()
            .map(|(_, uid)| uid.clone())
            .filter(helped)
            .collect();
        for uid in uids {
            self.retry(&uid, now);
        }
    }

    /// When the next pod becomes active by itself.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let backoff = self.backoff.first().map(|(until, _)| *until);
        let flush = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + UNSCHEDULABLE_MOST);
        backoff.into_iter().chain(flush).min()
    }

    /// Moves what is due.
    pub(crate) fn flush(&mut self, now: Instant) {
        while let Some((until, uid)) = self.backoff.first().cloned() {
            if until > now {
                break;
            }
            self.backoff.pop_first();
            if let Some(queued) = self.pods.remove(&uid) {
                self.activate(queued.pod, queued.attempts);
            }
        }
        while let Some((since, uid)) = self.unschedulable.first().cloned() {
            if since + UNSCHEDULABLE_MOST > now {
                break;
            }
            self.retry(&uid, now);
        }
    }

    /// Unschedulable → active, or → back-off while that lasts.
    fn retry(&mut self, uid: &str, now: Instant) {
        let Some(queued) = self.pods.remove(uid) else {
            return;
        };
        self.detach(uid, &queued.state);
        let QueueState::Unschedulable { since, .. } = queued.state else {
            return;
        };
        let until = since + backoff_of(queued.attempts);
        if until > now {
            self.back_off(queued.pod, queued.attempts, until);
        } else {
            self.activate(queued.pod, queued.attempts);
        }
    }

    fn activate(&mut self, pod: Arc<Pod>, attempts: u32) {
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        let key = (Reverse(priority), self.sequence);
        self.sequence += 1;
        let uid = pod.uid().to_owned();
        self.active.insert(key, uid.clone());
        self.pods.insert(
            uid,
            Queued {
                pod,
                attempts,
                state: QueueState::Active(key),
            },
        );
    }

    fn back_off(&mut self, pod: Arc<Pod>, attempts: u32, until: Instant) {
        let uid = pod.uid().to_owned();
        self.backoff.insert((until, uid.clone()));
        self.pods.insert(
            uid,
            Queued {
                pod,
                attempts,
                state: QueueState::Backoff { until },
            },
        );
    }

    fn detach(&mut self, uid: &str, state: &QueueState) {
        match state {
            QueueState::Active(key) => {
                self.active.remove(key);
            }
            QueueState::Backoff { until } => {
                self.backoff.remove(&(*until, uid.to_owned()));
            }
            QueueState::Unschedulable { since, .. } => {
                self.unschedulable.remove(&(*since, uid.to_owned()));
            }
        }
    }
}

impl Queued {
    fn is_helped_by(&self, event: ClusterEvent) -> bool {
        let QueueState::Unschedulable { plugins, .. } = &self.state else {
            return false;
        };
        match event {
            ClusterEvent::Node => true,
            ClusterEvent::PodGone => plugins
                .iter()
                .any(|plugin| ["NodeResourcesFit", "NodePorts"].contains(plugin)),
            ClusterEvent::Volume => plugins.contains(&VOLUME_BINDING),
        }
    }
}

fn backoff_of(attempts: u32) -> Duration {
    delay_after(BACKOFF_FIRST, BACKOFF_MOST, attempts.saturating_sub(1))
}

#[cfg(test)]
mod tests;
