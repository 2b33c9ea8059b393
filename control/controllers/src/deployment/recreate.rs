//! Recreate: all old pods go before the first new one starts.

use k8s_openapi::api::apps::v1::Deployment;

use super::sets::{Scale, Sets};
use super::wanted_replicas;
use crate::informers::{OWNER, Stores};
use crate::pod_state::has_ended;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Take the old sets down.
    Stop(Vec<Scale>),
    /// Old pods still run: their end wakes us.
    Wait,
    /// Bring the new set up.
    Start,
}

/// Decides, with the number of old pods that have not ended.
pub(super) fn plan(sets: &Sets, old_pods: usize) -> Step {
    let stop: Vec<_> = sets.active_old().map(|set| Scale::new(set, 0)).collect();
    if !stop.is_empty() {
        Step::Stop(stop)
    } else if old_pods > 0 {
        Step::Wait
    } else {
        Step::Start
    }
}

/// Pods of old sets that have not ended, those that are being deleted included.
pub(super) fn old_pods(stores: &Stores, sets: &Sets) -> usize {
    let pods = stores.pods.snapshot();
    let of_set = |uid: &str| {
        pods.by_index(OWNER, uid)
            .filter(|pod| !has_ended(pod))
            .count()
    };
    sets.old
        .iter()
        .map(|set| of_set(set.metadata.uid.as_deref().unwrap_or_default()))
        .sum()
}

/// What the new set shall want once it may.
pub(super) fn start(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    sets.new
        .iter()
        .map(|new| Scale::new(new, wanted_replicas(deployment)))
        .collect()
}
