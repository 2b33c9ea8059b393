//! A deployment's status: pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use swiftlet_client::Object;

use super::conditions::{self, AVAILABLE, PROGRESSING, Verdict};
use super::sets::{Sets, available, replicas};
use super::strategy::Limits;
use super::wanted_replicas;
use crate::reconcile::Again;

/// The roll-out has ended well.
pub(super) const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const SET_UPDATED: &str = "ReplicaSetUpdated";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// `progressDeadlineSeconds` that stands for none.
const NO_DEADLINE: i32 = i32::MAX;

/// The status without judging progress: for a deployment that is paused, scaled or going.
pub(super) fn compute(deployment: &Deployment, sets: &Sets, now: Timestamp) -> DeploymentStatus {
    let wanted = wanted_replicas(deployment);
    let sum = |count: &dyn Fn(&k8s_openapi::api::apps::v1::ReplicaSet) -> i32| -> i32 {
        sets.all().map(|set| count(set)).sum()
    };
    let available_replicas = sum(&available);
    let ready = sum(&|set| {
        set.status
            .as_ref()
            .and_then(|it| it.ready_replicas)
            .unwrap_or(0)
    });
    let mut conditions = conditions::of(deployment);
    let enough = available_replicas >= wanted - Limits::of(deployment).unavailable;
    let verdict = if enough {
        let message = "Deployment has minimum availability.";
        Verdict::new("True", "MinimumReplicasAvailable", message)
    } else {
        let message = "Deployment does not have minimum availability.";
        Verdict::new("False", "MinimumReplicasUnavailable", message)
    };
    conditions::set(&mut conditions, AVAILABLE, verdict, now, false);
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(&replicas)),
        updated_replicas: some(sets.new.as_ref().map_or(0, |set| replicas(set))),
        ready_replicas: some(ready),
        available_replicas: some(available_replicas),
        unavailable_replicas: some((sets.wanted() - available_replicas).max(0)),
        collision_count: deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count),
        conditions: Some(conditions),
        terminating_replicas: None,
    }
}

/// The same, and whether the roll-out moves, has ended, or is stuck; and when to look at it again.
pub(super) fn with_progress(
    deployment: &Deployment,
    sets: &Sets,
    now: Timestamp,
) -> (DeploymentStatus, Again) {
    let mut status = compute(deployment, sets, now);
    let mut conditions = status.conditions.take().unwrap_or_default();
    let mut again = None;
    if let Some(deadline) = deadline(deployment) {
        judge(deployment, sets, &status, &mut conditions, now);
        again = time_left(&conditions, deadline, now);
    } else {
        conditions.retain(|condition| condition.type_ != PROGRESSING);
    }
    status.conditions = Some(conditions);
    (status, again)
}

/// Whether all pods are of the present template, as many as wanted, and available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = wanted_replicas(deployment);
    let is_wanted = |count: Option<i32>| count.unwrap_or(0) == wanted;
    is_wanted(status.updated_replicas)
        && is_wanted(status.replicas)
        && is_wanted(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

/// The time in which a roll-out must make progress; `None`: any.
pub(super) fn deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    let seconds = u64::try_from(seconds)
        .ok()
        .filter(|_| seconds != NO_DEADLINE)?;
    Some(Duration::from_secs(seconds))
}

fn judge(
    deployment: &Deployment,
    sets: &Sets,
    status: &DeploymentStatus,
    conditions: &mut Vec<DeploymentCondition>,
    now: Timestamp,
) {
    let ended = conditions::find(conditions, PROGRESSING)
        .is_some_and(|condition| condition.reason.as_deref() == Some(NEW_SET_AVAILABLE));
    let settled = status.replicas.unwrap_or(0) == status.updated_replicas.unwrap_or(0);
    if ended && settled {
        // A pod that fails later is no new roll-out.
        return;
    }
    let subject = sets.new.as_ref().map_or_else(
        || format!("Deployment \"{}\"", deployment.name()),
        |set| format!("ReplicaSet \"{}\"", set.name()),
    );
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        let verdict = Verdict::new("True", NEW_SET_AVAILABLE, message);
        conditions::set(conditions, PROGRESSING, verdict, now, false);
    } else if is_progressing(deployment, status) {
        let message = format!("{subject} is progressing.");
        let verdict = Verdict::new("True", SET_UPDATED, message);
        conditions::set(conditions, PROGRESSING, verdict, now, true);
    } else if has_timed_out(deployment, conditions, now) {
        let message = format!("{subject} has timed out progressing.");
        let verdict = Verdict::new("False", TIMED_OUT, message);
        conditions::set(conditions, PROGRESSING, verdict, now, false);
    }
}

/// More new pods, fewer old ones, or more pods ready or available than before.
fn is_progressing(deployment: &Deployment, new: &DeploymentStatus) -> bool {
    let old = deployment.status.clone().unwrap_or_default();
    let updated = |status: &DeploymentStatus| status.updated_replicas.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - updated(status);
    updated(new) > updated(&old)
        || outdated(new) < outdated(&old)
        || new.ready_replicas.unwrap_or(0) > old.ready_replicas.unwrap_or(0)
        || new.available_replicas.unwrap_or(0) > old.available_replicas.unwrap_or(0)
}

fn has_timed_out(
    deployment: &Deployment,
    conditions: &[DeploymentCondition],
    now: Timestamp,
) -> bool {
    let Some(condition) = conditions::find(conditions, PROGRESSING) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => deadline(deployment)
            .and_then(|deadline| left_of(condition, deadline, now))
            .is_some_and(|left| left.is_zero()),
    }
}

/// When the deadline passes, if the roll-out has not ended.
fn time_left(conditions: &[DeploymentCondition], deadline: Duration, now: Timestamp) -> Again {
    let condition = conditions::find(conditions, PROGRESSING)?;
    let ended = matches!(
        condition.reason.as_deref(),
        Some(NEW_SET_AVAILABLE | TIMED_OUT)
    );
    left_of(condition, deadline, now).filter(|_| !ended)
}

fn left_of(
    condition: &DeploymentCondition,
    deadline: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let last = condition.last_update_time.as_ref()?.0;
    let elapsed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    Some(deadline.saturating_sub(elapsed))
}
