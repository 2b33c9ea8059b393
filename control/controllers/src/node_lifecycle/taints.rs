//! The taints that a node's conditions call for: pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::find;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that repel new pods, with their taints.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "node.kubernetes.io/network-unavailable",
    ),
];

/// The node's taints.
pub(super) fn of(node: &Node) -> &[Taint] {
    node.spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

/// The node's taints as they shall be: those that are not ours stay as they are.
pub(super) fn wanted(node: &Node, now: Timestamp) -> Vec<Taint> {
    let called_for = called_for(node);
    let stays = |taint: &Taint| !is_ours(taint) || called_for.iter().any(|it| same(it, taint));
    let mut taints: Vec<_> = of(node)
        .iter()
        .filter(|taint| stays(taint))
        .cloned()
        .collect();
    for mut taint in called_for {
        if !taints.iter().any(|known| same(known, &taint)) {
            taint.time_added = Some(Time(now));
            taints.push(taint);
        }
    }
    taints
}

fn called_for(node: &Node) -> Vec<Taint> {
    let taint = |key: &str, effect: &str| Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    let mut taints = Vec::new();
    let silent = match find(node, "Ready").map(|condition| condition.status.as_str()) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        // A node that has never reported is not ready, but has nothing to evict.
        Some(_) | None => Some(NOT_READY),
    };
    if let Some(key) = silent {
        taints.push(taint(key, "NoSchedule"));
        if find(node, "Ready").is_some() {
            taints.push(taint(key, "NoExecute"));
        }
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        taints.push(taint(UNSCHEDULABLE, "NoSchedule"));
    }
    for (condition, key) in PRESSURES {
        if find(node, condition).is_some_and(|condition| condition.status == "True") {
            taints.push(taint(key, "NoSchedule"));
        }
    }
    taints
}

fn is_ours(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key)
        || PRESSURES.iter().any(|(_, pressure)| *pressure == key)
}

fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}
