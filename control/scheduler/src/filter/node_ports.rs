//! A port of the node is given to one pod at a time.

use k8s_openapi::api::core::v1::Pod;
use swiftlet_proto::pod::host_ports;

use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::{NodeInfo, PodUse};

pub(crate) struct NodePorts;

impl Filter for NodePorts {
    fn filter(&self, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let is_free = match cycle.get::<PodUse>() {
            Some(pod) => pod.ports.iter().all(|port| node.has_free(port)),
            None => host_ports(pod).all(|port| node.has_free(&port)),
        };
        if is_free {
            return Ok(());
        }
        let reason = "node(s) didn't have free ports for the requested pod ports";
        Err(Rejection::new("NodePorts", reason))
    }
}
