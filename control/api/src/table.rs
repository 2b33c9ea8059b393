//! `Table` (`meta.k8s.io/v1`): the rows that `kubectl get` prints.

mod age;
mod classes;
mod column;
mod config;
mod deployment;
mod event;
mod namespace;
mod node;
mod pod;
mod pod_status;
mod replicaset;
mod service;
mod storage;
mod template;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::Resource;
use column::Column;

pub use age::human_duration;

/// What of each object a row carries beside its cells (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is the default. `None`: not one of the three words.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// The columns and the cells of one kind.
struct Printer {
    columns: &'static [Column],
    /// As many cells as there are columns.
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The table of some objects of one resource. `list_meta` becomes its `metadata`:
/// `resourceVersion` and, of a list, `continue` and `remainingItemCount`.
pub fn table(
    resource: &Resource,
    objects: &[Value],
    list_meta: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let printer = printer(resource.name.plural);
    let columns: Vec<Value> = printer.columns.iter().map(Column::definition).collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({ "cells": (printer.cells)(object, now) });
            match include {
                IncludeObject::None => row["object"] = Value::Null,
                IncludeObject::Metadata => row["object"] = partial(object),
                IncludeObject::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn printer(plural: &str) -> Printer {
    match plural {
        "pods" => pod::PRINTER,
        "nodes" => node::PRINTER,
        "namespaces" => namespace::PRINTER,
        "events" => event::PRINTER,
        "deployments" => deployment::PRINTER,
        "replicasets" => replicaset::PRINTER,
        "configmaps" => config::CONFIG_MAPS,
        "secrets" => config::SECRETS,
        "serviceaccounts" => config::SERVICE_ACCOUNTS,
        "services" => service::PRINTER,
        "persistentvolumes" => storage::VOLUMES,
        "persistentvolumeclaims" => storage::CLAIMS,
        "storageclasses" => classes::STORAGE_CLASSES,
        "priorityclasses" => classes::PRIORITY_CLASSES,
        "runtimeclasses" => classes::RUNTIME_CLASSES,
        "leases" => config::LEASES,
        _ => column::PLAIN,
    }
}

/// `PartialObjectMetadata` of an object.
fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

#[cfg(test)]
mod tests;
