//! Which pod is missed least.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::Object;

use crate::pod_state::{is_ready, phase, ready_since};

/// What a user thinks a pod is worth; zero if it is missing.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts pods so that the least missed come first: unassigned before assigned, pending before
/// unknown before running, not ready before ready, cheap before dear, from the fuller node before
/// the emptier, ready for a shorter time, restarted more often, younger.
pub(super) fn sort(pods: &mut [Arc<Pod>]) {
    let mut neighbours = HashMap::<String, usize>::new();
    for pod in pods.iter() {
        *neighbours.entry(node_of(pod).to_owned()).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let neighbours = neighbours.get(node_of(pod)).copied().unwrap_or(0);
        (
            !node_of(pod).is_empty(),
            phase_rank(pod),
            is_ready(pod),
            deletion_cost(pod),
            Reverse(neighbours),
            Reverse(ready_since(pod).unwrap_or(Timestamp::MIN)),
            Reverse(restarts(pod)),
            Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            pod.name().to_owned(),
        )
    });
}

fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|annotations| annotations.get(DELETION_COST));
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}
