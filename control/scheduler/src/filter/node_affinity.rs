//! `spec.nodeSelector` and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_proto::selector::selects_node;

use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::NodeInfo;

pub(crate) struct NodeAffinity;

type Labels = BTreeMap<String, String>;

impl Filter for NodeAffinity {
    fn filter(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        if selects(pod, node) {
            return Ok(());
        }
        let reason = "node(s) didn't match Pod's node affinity/selector";
        Err(Rejection::new("NodeAffinity", reason))
    }
}

fn selects(pod: &Pod, node: &NodeInfo) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = Labels::new();
    let labels = node.labels().unwrap_or(&none);
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    required.is_none_or(|required| selects_node(required, labels, node.name()))
}
