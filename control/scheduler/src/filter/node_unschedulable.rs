//! A cordoned node takes only pods that tolerate it.

use k8s_openapi::api::core::v1::{Pod, Taint};

use super::tolerates;
use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::NodeInfo;

pub(crate) struct NodeUnschedulable;

impl Filter for NodeUnschedulable {
    fn filter(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let cordoned = node
            .node()
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable);
        if cordoned != Some(true) {
            return Ok(());
        }
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if tolerates(pod, &taint) {
            return Ok(());
        }
        Err(Rejection::new(
            "NodeUnschedulable",
            "node(s) were unschedulable",
        ))
    }
}
