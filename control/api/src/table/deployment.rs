//! Deployments.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, number_at};
use super::template::{self, CONTAINERS, IMAGES, SELECTOR};

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Ready", "Number of the pod with ready state"),
        Column::text("Up-to-date", "Pods that have the desired template."),
        Column::text("Available", "Pods that have been ready for long enough."),
        Column::AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells,
};

fn cells(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let number = |pointer: &str| number_at(deployment, pointer);
    let ready = format!(
        "{}/{}",
        number("/status/readyReplicas"),
        number("/spec/replicas")
    );
    let mut cells = vec![
        name(deployment),
        ready.into(),
        number("/status/updatedReplicas").into(),
        number("/status/availableReplicas").into(),
        created(deployment, now),
    ];
    cells.extend(template::cells(deployment));
    cells
}
