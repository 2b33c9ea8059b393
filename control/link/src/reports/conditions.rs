//! Conditions of a pod that others than its node write (Kubernetes: `mergePodStatus` in
//! `pkg/kubelet/status/status_manager.go`): they outlive the node's reports.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use swiftlet_client::api::ObjectName;

use super::{ReportError, Reports};

/// Types that the node alone decides, those it leaves out included
/// (`PodConditionsByKubelet`, pkg/kubelet/types/pod_status.go).
const BY_KUBELET: [&str; 7] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
];
/// The type that the node may set, and others too (`PodConditionSharedByKubelet`).
const SHARED: &str = "DisruptionTarget";

/// What a stored pod says that its node's report must not undo.
#[derive(Deserialize)]
pub(super) struct Stored {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Value>>,
}

impl Stored {
    /// Of an encoded pod.
    pub(super) fn of(pod: &Bytes) -> Result<Self, ReportError> {
        serde_json::from_slice(pod).map_err(|_| ReportError::Malformed("stored pod"))
    }

    /// The pod's revision.
    pub(super) fn revision(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Whether the pod has changed since.
    pub(super) async fn is_outdated(&self, reports: &Reports, pod: &ObjectName) -> bool {
        match reports.api.get(pod).await {
            Ok(newer) => Self::of(&newer).is_ok_and(|newer| newer.revision() != self.revision()),
            // The report's own error says it.
            Err(_) => false,
        }
    }
}

/// The conditions that the node sent, with those of others as they are stored.
pub(super) fn merged(sent: &Value, stored: &Stored) -> Value {
    let sent = sent.as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |list: &[Value], kind: &Value| list.iter().any(|one| one["type"] == *kind);
    let is_by_node = |one: &&Value| {
        BY_KUBELET.iter().any(|kind| one["type"] == *kind)
            || (one["type"] == SHARED && one["status"] == "True")
    };
    let own: Vec<Value> = sent.iter().filter(is_by_node).cloned().collect();
    let others = stored.status.conditions.iter().flatten();
    let others = others.filter(|one| {
        let kind = &one["type"];
        !BY_KUBELET.iter().any(|name| *kind == *name) && !has(&own, kind)
    });
    let others: Vec<Value> = others.cloned().collect();
    own.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status})
    }

    fn stored(conditions: &Value) -> Stored {
        let pod = json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"conditions": conditions},
        });
        Stored::of(&pod.to_string().into()).unwrap()
    }

    #[test]
    fn what_others_have_said_meanwhile_outlives_a_status_that_was_on_its_way() {
        let known = stored(&json!([
            condition("Ready", "False"),
            condition("PodResizePending", "True"),
            condition("DisruptionTarget", "True"),
            condition("example.com/gate", "True"),
        ]));
        // The node has not heard of the gate's change, and knows one that was removed.
        let sent = json!([
            condition("Ready", "True"),
            condition("example.com/gate", "False"),
            condition("example.com/removed", "True"),
        ]);
        let expected = json!([
            condition("Ready", "True"),
            condition("DisruptionTarget", "True"),
            condition("example.com/gate", "True"),
        ]);
        assert_eq!(merged(&sent, &known), expected);
    }

    #[test]
    fn a_node_that_ends_a_pod_says_so_itself() {
        let known = stored(&json!([condition("DisruptionTarget", "False")]));
        let sent = json!([condition("DisruptionTarget", "True")]);
        assert_eq!(merged(&sent, &known), sent);
        assert_eq!(merged(&Value::Null, &stored(&Value::Null)), json!([]));
    }
}
