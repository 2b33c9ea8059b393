//! Classes: of priorities, of runtimes and of storage.

use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, number_at};
use crate::strategy::text_at;

pub(super) const PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::number("Value", "The priority of the class's pods."),
        Column::text(
            "Global-Default",
            "Whether pods without a class have this one.",
        ),
        Column::AGE,
        Column::text("PreemptionPolicy", "Whether its pods drive out others."),
    ],
    cells: |class, now| {
        vec![
            name(class),
            number_at(class, "/value").into(),
            flag(class, "/globalDefault").into(),
            created(class, now),
            text_at(class, "/preemptionPolicy").into(),
        ]
    },
};

pub(super) const RUNTIME_CLASSES: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Handler", "The runtime's configuration on the node."),
        Column::AGE,
    ],
    cells: |class, now| {
        let handler = text_at(class, "/handler").into();
        vec![name(class), handler, created(class, now)]
    },
};

pub(super) const STORAGE_CLASSES: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Provisioner", "Who makes the volumes."),
        Column::text("ReclaimPolicy", "What happens to released volumes."),
        Column::text("VolumeBindingMode", "When claims are bound."),
        Column::text("AllowVolumeExpansion", "Whether volumes can grow."),
        Column::AGE,
    ],
    cells: |class, now| {
        vec![
            storage_name(class).into(),
            text_at(class, "/provisioner").into(),
            text_at(class, "/reclaimPolicy").into(),
            text_at(class, "/volumeBindingMode").into(),
            flag(class, "/allowVolumeExpansion").into(),
            created(class, now),
        ]
    },
};

fn flag(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

fn storage_name(class: &Value) -> String {
    let name = text_at(class, "/metadata/name");
    let pointer = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
    if text_at(class, pointer) == "true" {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}
