//! PersistentVolumes and their claims.

use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, text_or};
use crate::strategy::{list_at, text_at};

pub(super) const VOLUMES: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Capacity", "How much the volume holds."),
        Column::text("Access Modes", "How it can be mounted."),
        Column::text("Reclaim Policy", "What happens when it is released."),
        Column::text("Status", "Whether it is claimed."),
        Column::text("Claim", "The claim that it is bound to."),
        Column::text("StorageClass", "Its class."),
        Column::text("VolumeAttributesClass", "The class of its attributes."),
        Column::text("Reason", "Why it is in this state."),
        Column::AGE,
        Column::text("VolumeMode", "File system or block device.").wide(),
    ],
    cells: |volume, now| {
        vec![
            name(volume),
            text_at(volume, "/spec/capacity/storage").into(),
            modes(volume, "/spec/accessModes").into(),
            text_at(volume, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(volume).into(),
            claim(volume).into(),
            text_at(volume, "/spec/storageClassName").into(),
            text_or(volume, "/spec/volumeAttributesClassName", "<unset>").into(),
            text_at(volume, "/status/reason").into(),
            created(volume, now),
            text_or(volume, "/spec/volumeMode", "<unset>").into(),
        ]
    },
};

pub(super) const CLAIMS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Status", "Whether the claim is met."),
        Column::text("Volume", "The volume that it is bound to."),
        Column::text("Capacity", "How much the volume holds."),
        Column::text("Access Modes", "How it can be mounted."),
        Column::text("StorageClass", "The class that is asked for."),
        Column::text("VolumeAttributesClass", "The class of its attributes."),
        Column::AGE,
        Column::text("VolumeMode", "File system or block device.").wide(),
    ],
    cells: |claim, now| {
        let is_bound = !text_at(claim, "/spec/volumeName").is_empty();
        let bound = |text: String| if is_bound { text } else { String::new() };
        vec![
            name(claim),
            phase(claim).into(),
            text_at(claim, "/spec/volumeName").into(),
            bound(text_at(claim, "/status/capacity/storage").into()).into(),
            bound(modes(claim, "/status/accessModes")).into(),
            text_at(claim, "/spec/storageClassName").into(),
            text_or(claim, "/spec/volumeAttributesClassName", "<unset>").into(),
            created(claim, now),
            text_or(claim, "/spec/volumeMode", "<unset>").into(),
        ]
    },
};

/// `Terminating` from the begin of the deletion on.
fn phase(object: &Value) -> &str {
    if text_at(object, "/metadata/deletionTimestamp").is_empty() {
        text_at(object, "/status/phase")
    } else {
        "Terminating"
    }
}

fn claim(volume: &Value) -> String {
    let name = text_at(volume, "/spec/claimRef/name");
    if name.is_empty() {
        return String::new();
    }
    format!("{}/{name}", text_at(volume, "/spec/claimRef/namespace"))
}

/// The short names, in a fixed order.
fn modes(object: &Value, pointer: &str) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| list_at(object, pointer).iter().any(|one| one == mode);
    let short: Vec<&str> = SHORT
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect();
    short.join(",")
}
