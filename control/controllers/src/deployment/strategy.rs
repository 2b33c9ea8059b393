//! `spec.strategy` in numbers.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::wanted_replicas;

/// What a rolling update uses when the strategy says nothing (the API's default).
const DEFAULT_PERCENT: &str = "25%";

/// How far a rolling update may go beyond and below the wanted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Pods more than wanted.
    pub(super) surge: i32,
    /// Pods fewer than wanted.
    pub(super) unavailable: i32,
}

/// Whether old pods must be gone before new ones start.
pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

impl Limits {
    /// Surge is rounded up, unavailability down; if both come to zero, one pod may be unavailable,
    /// or nothing could ever move.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let replicas = wanted_replicas(deployment);
        if is_recreate(deployment) {
            return Self {
                surge: 0,
                unavailable: 0,
            };
        }
        let strategy = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let surge = scaled(surge, replicas, Round::Up);
        let unavailable = scaled(unavailable, replicas, Round::Down);
        if surge == 0 && unavailable == 0 {
            return Self {
                surge,
                unavailable: 1.min(replicas),
            };
        }
        Self {
            surge,
            unavailable: unavailable.min(replicas),
        }
    }
}

#[derive(Clone, Copy)]
enum Round {
    Up,
    Down,
}

/// A number, or a percentage of the replicas. What is neither counts as zero: the API refuses it.
fn scaled(value: Option<&IntOrString>, replicas: i32, round: Round) -> i32 {
    let text = match value {
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text.as_str(),
        None => DEFAULT_PERCENT,
    };
    let percent = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<i64>().ok());
    let hundredths = percent
        .unwrap_or(0)
        .max(0)
        .saturating_mul(i64::from(replicas));
    let scaled = match round {
        Round::Up => hundredths.saturating_add(99) / 100,
        Round::Down => hundredths / 100,
    };
    i32::try_from(scaled).unwrap_or(i32::MAX)
}
