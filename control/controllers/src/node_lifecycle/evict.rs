//! How long a pod may stay on a tainted node: pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::taints::{NOT_READY, UNREACHABLE};

/// How long a pod that says nothing stays on a node that is not ready or unreachable (Kubernetes'
/// admission plugin `DefaultTolerationSeconds`).
const DEFAULT_TOLERATION: Duration = Duration::from_mins(5);

/// What is left of the pod's time on the node; `None`: as long as it likes.
pub(super) fn time_left(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Duration> {
    let taints = taints.iter().filter(|taint| taint.effect == "NoExecute");
    taints
        .filter_map(|taint| time_left_with(pod, taint, now))
        .min()
}

/// The condition that says why the pod ends; `None` if it says so already (Kubernetes:
/// `pkg/controller/tainteviction`).
pub(super) fn disrupted(pod: &Pod, now: Timestamp) -> Option<Vec<PodCondition>> {
    const KIND: &str = "DisruptionTarget";
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_known = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == KIND && condition.status == "True");
    (!is_known).then(|| {
        vec![PodCondition {
            type_: KIND.to_owned(),
            status: "True".to_owned(),
            reason: Some("DeletionByTaintManager".to_owned()),
            message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
            observed_generation: pod.metadata.generation,
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        }]
    })
}

fn time_left_with(pod: &Pod, taint: &Taint, now: Timestamp) -> Option<Duration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    let matching: Vec<_> = tolerations
        .into_iter()
        .flatten()
        .filter(|it| tolerates(it, taint))
        .collect();
    let by_default = [NOT_READY, UNREACHABLE].contains(&taint.key.as_str());
    let allowed = if matching.is_empty() {
        if by_default {
            DEFAULT_TOLERATION
        } else {
            Duration::ZERO
        }
    } else {
        // Of several tolerations with a time the shortest counts; without any time there is no end.
        let times = matching
            .iter()
            .filter_map(|toleration| toleration.toleration_seconds);
        Duration::from_secs(u64::try_from(times.min()?).unwrap_or(0))
    };
    let since = taint.time_added.as_ref().map_or(now, |time| time.0);
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(allowed.saturating_sub(elapsed))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    let equal = || text(&toleration.value) == text(&taint.value);
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && equal(),
            _ => false,
        }
}
