//! Whether the pod may be on this node: selectors, taints, ports of the host. The scheduler has
//! asked the same; who names a node by hand has not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use swiftlet_model::sources::is_static;
use swiftlet_proto::selector::selects_node;

use crate::admission::{NodeState, Rejection, Room, rejection};

type Labels = BTreeMap<String, String>;

/// The node's labels and taints in the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
}

impl NodeView {
    /// What the object says.
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec
                .and_then(|spec| spec.taints.clone())
                .unwrap_or_default(),
        }
    }
}

pub(super) fn check(pod: &Pod, room: &Room, node: &NodeState<'_>) -> Result<(), Rejection> {
    if let Some(view) = node.view
        && !selects(pod, &view.labels, node.name)
    {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Err(failed("NodeAffinity", why));
    }
    if room.ports_taken(pod) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Err(failed("NodePorts", why));
    }
    let taints = node.view.map(|view| view.taints.as_slice());
    let mut taints = taints.unwrap_or_default().iter();
    let untolerated = taints.any(|taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        taint.effect == "NoExecute" && !tolerates(pod, &taint.key, value, &taint.effect)
    });
    if untolerated && !is_static(pod) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Err(failed("TaintToleration", why));
    }
    Ok(())
}

fn failed(predicate: &str, why: &str) -> Rejection {
    rejection(predicate, format!("Predicate {predicate} failed: {why}"))
}

/// Whether the pod tolerates a taint of that key, value and effect.
pub(super) fn tolerates(pod: &Pod, key: &str, value: &str, effect: &str) -> bool {
    let spec = pod.spec.as_ref();
    let mut all = spec
        .into_iter()
        .flat_map(|spec| spec.tolerations.iter().flatten());
    all.any(|one| toleration_covers(one, key, value, effect))
}

fn toleration_covers(one: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let any_or = |written: Option<&String>, wanted: &str| {
        written.is_none_or(|written| written.is_empty() || written == wanted)
    };
    if !any_or(one.effect.as_ref(), effect) || !any_or(one.key.as_ref(), key) {
        return false;
    }
    match one.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => one.value.as_deref().unwrap_or_default() == value,
        _ => false,
    }
}

fn selects(pod: &Pod, labels: &Labels, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        let required = &affinity.required_during_scheduling_ignored_during_execution;
        required.as_ref()
    });
    required.is_none_or(|required| selects_node(required, labels, name))
}
