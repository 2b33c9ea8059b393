//! Nodes.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, text_or};
use crate::strategy::{list_at, text_at};

/// Labels that give a node a role: the role is what follows.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// The older label, whose value is the role.
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Status", "The status of the node"),
        Column::text("Roles", "The roles of the node"),
        Column::AGE,
        Column::text("Version", "Kubelet Version reported by the node."),
        Column::text("Internal-IP", "The address inside the cluster.").wide(),
        Column::text("External-IP", "The address outside the cluster.").wide(),
        Column::text("OS-Image", "OS Image reported by the node.").wide(),
        Column::text("Kernel-Version", "Kernel Version reported by the node.").wide(),
        Column::text(
            "Container-Runtime",
            "ContainerRuntime Version reported by the node.",
        )
        .wide(),
    ],
    cells,
};

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |key: &str| text_or(node, &format!("/status/nodeInfo/{key}"), "<unknown>").into();
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        created(node, now),
        text_at(node, "/status/nodeInfo/kubeletVersion").into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn status(node: &Value) -> String {
    let ready = list_at(node, "/status/conditions")
        .iter()
        .find(|condition| text_at(condition, "/type") == "Ready");
    let word = match ready.map(|condition| text_at(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool);
    if cordoned == Some(true) {
        format!("{word},SchedulingDisabled")
    } else {
        word.into()
    }
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".into()
    } else {
        roles.join(",")
    }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    list_at(node, "/status/addresses")
        .iter()
        .find(|address| text_at(address, "/type") == kind)
        .map_or("<none>", |address| text_at(address, "/address"))
}
