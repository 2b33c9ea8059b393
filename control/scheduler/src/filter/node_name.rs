//! A pod that names its node goes nowhere else.

use k8s_openapi::api::core::v1::Pod;

use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::NodeInfo;

pub(crate) struct NodeName;

impl Filter for NodeName {
    fn filter(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let wanted = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or_default();
        if wanted.is_empty() || wanted == node.name() {
            return Ok(());
        }
        Err(Rejection::new(
            "NodeName",
            "node(s) didn't match the requested node name",
        ))
    }
}
