//! Pods.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::age::since;
use super::column::{Column, created, name, text_or};
use super::pod_status::{PodSummary, has_condition, summarize};
use crate::strategy::{list_at, text_at};

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text(
            "Ready",
            "The aggregate readiness state of this pod for accepting traffic.",
        ),
        Column::text(
            "Status",
            "The aggregate status of the containers in this pod.",
        ),
        Column::text(
            "Restarts",
            "How often containers restarted, and when one last did.",
        ),
        Column::AGE,
        Column::text("IP", "IP address allocated to the pod.").wide(),
        Column::text("Node", "The node on which the pod is to run.").wide(),
        Column::text(
            "Nominated Node",
            "The node that waits for room for the pod.",
        )
        .wide(),
        Column::text(
            "Readiness Gates",
            "Conditions that are true, of those demanded.",
        )
        .wide(),
    ],
    cells,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarize(pod);
    let address = match list_at(pod, "/status/podIPs") {
        [] => "<none>",
        [first, ..] => text_or(first, "/ip", "<none>"),
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.as_str().into(),
        restarts(&summary, now).into(),
        created(pod, now),
        address.into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// `3 (5s ago)`.
fn restarts(summary: &PodSummary, now: Timestamp) -> String {
    let count = summary.restarts;
    match summary.last_restart {
        Some(last) if count != 0 => format!("{count} ({} ago)", since(last, now)),
        _ => count.to_string(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list_at(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let is_true = |gate: &&Value| has_condition(pod, text_at(gate, "/conditionType"));
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}
