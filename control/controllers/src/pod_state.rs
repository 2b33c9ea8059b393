//! What a pod's status says, as controllers ask it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use swiftlet_client::Object;

/// `status.phase`, or empty.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether it runs or will run: it has not ended and is not being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !pod.is_terminating()
}

/// Whether it has ended for good.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether its Ready condition is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

/// Since when it has been ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod)
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0)
}

/// Whether a pod has been ready long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    NotReady,
    /// Ready, and available after this time.
    After(Duration),
    Available,
}

/// Judges a pod by `minReadySeconds`.
pub(crate) fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    if !is_ready(pod) {
        return Availability::NotReady;
    }
    let wanted = Duration::from_secs(u64::try_from(min_ready_seconds).unwrap_or(0));
    if wanted.is_zero() {
        return Availability::Available;
    }
    let Some(since) = ready_since(pod) else {
        return Availability::NotReady;
    };
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match wanted.checked_sub(elapsed) {
        Some(left) if !left.is_zero() => Availability::After(left),
        _ => Availability::Available,
    }
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready")
}
