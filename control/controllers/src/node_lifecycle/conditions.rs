//! A node's conditions: pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions that a silent node can no longer vouch for.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// One condition.
pub(super) fn find<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

/// When the node itself last reported.
pub(super) fn heartbeat(node: &Node) -> Option<Timestamp> {
    find(node, "Ready")
        .and_then(|condition| condition.last_heartbeat_time.as_ref())
        .map(|time| time.0)
}

/// All conditions, with those that the node vouches for Unknown; `None` if they are already.
pub(super) fn unknown(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let mut conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let before = conditions.clone();
    for kind in VOUCHED {
        match conditions
            .iter_mut()
            .find(|condition| condition.type_ == kind)
        {
            Some(condition) if condition.status == "Unknown" => (),
            Some(condition) => {
                "Unknown".clone_into(&mut condition.status);
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    (conditions != before).then_some(conditions)
}
