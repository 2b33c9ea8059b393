//! Events.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::age::age_at;
use super::column::{Column, name, number_at};
use crate::strategy::text_at;

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::text("Last Seen", "When the event was last seen."),
        Column::text("Type", "Normal or Warning."),
        Column::text("Reason", "A short word for why it happened."),
        Column::text("Object", "The object that it is about."),
        Column::text("Subobject", "The part of the object.").wide(),
        Column::text("Source", "Who reports it.").wide(),
        Column::text("Message", "What happened, for people."),
        Column::text("First Seen", "When the event was first seen.").wide(),
        Column::text("Count", "How often it occurred.").wide(),
        Column::NAME.wide(),
    ],
    cells,
};

fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let age = |pointers: &[&str]| -> Value {
        let found = pointers
            .iter()
            .find(|pointer| !text_at(event, pointer).is_empty());
        found
            .map_or_else(|| "<unknown>".into(), |pointer| age_at(event, pointer, now))
            .into()
    };
    let kind = text_at(event, "/involvedObject/kind").to_lowercase();
    let count = match (
        number_at(event, "/series/count"),
        number_at(event, "/count"),
    ) {
        (0, 0) => 1,
        (0, count) => count,
        (series, _) => series,
    };
    vec![
        age(&[
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/firstTimestamp",
            "/eventTime",
        ]),
        text_at(event, "/type").into(),
        text_at(event, "/reason").into(),
        format!("{kind}/{}", text_at(event, "/involvedObject/name")).into(),
        text_at(event, "/involvedObject/fieldPath").into(),
        source(event).into(),
        text_at(event, "/message").trim().into(),
        age(&["/firstTimestamp", "/eventTime"]),
        count.into(),
        name(event),
    ]
}

/// `kubelet, node-1`.
fn source(event: &Value) -> String {
    let first = |pointers: [&str; 2]| {
        pointers
            .into_iter()
            .map(|pointer| text_at(event, pointer))
            .find(|text| !text.is_empty())
    };
    let component = first(["/source/component", "/reportingComponent"]).unwrap_or_default();
    match first(["/source/host", "/reportingInstance"]) {
        Some(host) => format!("{component}, {host}"),
        None => component.to_owned(),
    }
}
