//! A node takes no more than it has.

use k8s_openapi::api::core::v1::Pod;

use crate::framework::{Cycle, Filter, PreFilter, Rejection};
use crate::node_info::{NodeInfo, PodUse, Snapshot};

pub(crate) struct NodeResourcesFit;

const PLUGIN: &str = "NodeResourcesFit";

impl PreFilter for NodeResourcesFit {
    fn pre_filter(
        &self,
        cycle: &mut Cycle,
        pod: &Pod,
        _snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        cycle.set(PodUse::of(pod));
        Ok(())
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let reasons = match cycle.get::<PodUse>() {
            Some(pod) => shortages(pod, node),
            None => shortages(&PodUse::of(pod), node),
        };
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection {
            plugin: PLUGIN,
            reasons,
        })
    }
}

fn shortages(pod: &PodUse, node: &NodeInfo) -> Vec<String> {
    let mut reasons = Vec::new();
    let allocatable = node.allocatable();
    if node.pods() + 1 > allocatable.get("pods") {
        reasons.push("Too many pods".to_owned());
    }
    for (name, wanted) in pod.requested.iter() {
        let free = allocatable
            .get(name)
            .saturating_sub(node.requested().get(name));
        if wanted > 0 && wanted > free {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    reasons
}
