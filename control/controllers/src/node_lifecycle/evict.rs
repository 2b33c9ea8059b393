//! How long a pod may stay on a tainted node: pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

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
