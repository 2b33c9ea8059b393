//! Swagger 2.0, one document for everything.

use serde_json::{Map, Value, json};

use super::operation::{self, Parameter};
use super::schema_name;
use crate::registry::Resource;

/// The document.
pub(super) fn document(resources: &[Resource], version: &str) -> Value {
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for resource in resources {
        paths.extend(operation::paths(resource, parameter));
        definitions.insert(schema_name(resource), operation::schema(resource));
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": version },
        "paths": paths,
        "definitions": definitions,
    })
}

fn parameter(parameter: &Parameter) -> Value {
    let mut written = json!({
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.kind,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        written["required"] = true.into();
    }
    written
}
