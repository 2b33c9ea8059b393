//! The conditions Available and Progressing, with Kubernetes' reasons.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Enough pods are available.
pub(super) const AVAILABLE: &str = "Available";
/// The roll-out moves, or has ended well.
pub(super) const PROGRESSING: &str = "Progressing";

/// A condition's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn new(
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }
}

/// A deployment's condition.
pub(super) fn find<'a>(
    conditions: &'a [DeploymentCondition],
    kind: &str,
) -> Option<&'a DeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The conditions that a deployment has.
pub(super) fn of(deployment: &Deployment) -> Vec<DeploymentCondition> {
    deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default()
}

/// Sets a condition. Status and reason alone decide whether it is a new one; `renew` makes the time
/// of the last update move although they are the same, as progress does.
pub(super) fn set(
    conditions: &mut Vec<DeploymentCondition>,
    kind: &str,
    verdict: Verdict,
    now: Timestamp,
    renew: bool,
) {
    let known = find(conditions, kind).cloned();
    let same_status = known
        .as_ref()
        .is_some_and(|known| known.status == verdict.status);
    let same_reason = known
        .as_ref()
        .is_some_and(|known| known.reason.as_deref() == Some(verdict.reason));
    if same_status && same_reason && !renew {
        return;
    }
    let since = known
        .filter(|_| same_status)
        .and_then(|known| known.last_transition_time);
    let condition = DeploymentCondition {
        type_: kind.to_owned(),
        status: verdict.status.to_owned(),
        reason: Some(verdict.reason.to_owned()),
        message: Some(verdict.message),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        last_update_time: Some(Time(now)),
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == kind)
    {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}
