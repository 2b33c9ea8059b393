//! ReplicaSets.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, number_at};
use super::template::{self, CONTAINERS, IMAGES, SELECTOR};

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::number("Desired", "The number of desired pods."),
        Column::number("Current", "The most recently observed number of pods."),
        Column::number("Ready", "The number of pods with a Ready condition."),
        Column::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells,
};

fn cells(replica_set: &Value, now: Timestamp) -> Vec<Value> {
    let number = |pointer: &str| -> Value { number_at(replica_set, pointer).into() };
    let mut cells = vec![
        name(replica_set),
        number("/spec/replicas"),
        number("/status/replicas"),
        number("/status/readyReplicas"),
        created(replica_set, now),
    ];
    cells.extend(template::cells(replica_set));
    cells
}
