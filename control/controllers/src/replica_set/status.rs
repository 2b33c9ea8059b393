//! A set's status: pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use swiftlet_proto::selector::LabelSelector;

use super::manage::Failure;
use crate::pod_state::{Availability, availability, is_ready};
use crate::reconcile::Again;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The status, and when a pod that is ready now will count as available.
pub(super) fn compute(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> (ReplicaSetStatus, Again) {
    let spec = set.spec.clone().unwrap_or_default();
    let min_ready_seconds = spec.min_ready_seconds.unwrap_or(0);
    let template = spec
        .template
        .unwrap_or_default()
        .metadata
        .unwrap_or_default();
    let template = LabelSelector::from_labels(&template.labels.unwrap_or_default());
    let count = |keep: &dyn Fn(&Pod) -> bool| {
        let count = active.iter().filter(|pod| keep(pod)).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let mut again: Again = None;
    for pod in active {
        if let Availability::After(left) = availability(pod, min_ready_seconds, now) {
            again = Some(again.map_or(left, |known| known.min(left)));
        }
    }
    let fully_labeled =
        |pod: &Pod| template.matches(&pod.metadata.labels.clone().unwrap_or_default());
    let available =
        |pod: &Pod| availability(pod, min_ready_seconds, now) == Availability::Available;
    let status = ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: Some(count(&fully_labeled)).filter(|count| *count != 0),
        ready_replicas: Some(count(&is_ready)).filter(|count| *count != 0),
        available_replicas: Some(count(&available)).filter(|count| *count != 0),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, failure, now),
        terminating_replicas: None,
    };
    (status, again)
}

fn conditions(
    set: &ReplicaSet,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let known = set
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone());
    let (mut failures, mut others): (Vec<_>, Vec<_>) = known
        .unwrap_or_default()
        .into_iter()
        .partition(|condition| condition.type_ == REPLICA_FAILURE);
    if let Some(failure) = failure {
        let same = failures
            .pop()
            .filter(|known| known.reason.as_deref() == Some(failure.reason));
        others.push(same.unwrap_or_else(|| ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason.to_owned()),
            message: Some(failure.message()),
            last_transition_time: Some(Time(now)),
        }));
    }
    (!others.is_empty()).then_some(others)
}
