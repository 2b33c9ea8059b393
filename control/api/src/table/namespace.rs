//! Namespaces.

use super::Printer;
use super::column::{Column, created, name};
use crate::strategy::text_at;

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Status", "The status of the namespace"),
        Column::AGE,
    ],
    cells: |namespace, now| {
        vec![
            name(namespace),
            text_at(namespace, "/status/phase").into(),
            created(namespace, now),
        ]
    },
};
