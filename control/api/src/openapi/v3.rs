//! OpenAPI 3.0, one document for each group and version.

use serde_json::{Map, Value, json};

use super::operation::{self, Parameter};
use super::{group_version, schema_name};
use crate::registry::Resource;

/// The list of documents.
pub(super) fn index(groups: &[String]) -> Value {
    let paths: Map<String, Value> = groups
        .iter()
        .map(|path| {
            let url = format!("/openapi/v3/{path}");
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The document of `api/v1` or `apis/<group>/<version>`.
pub(super) fn document(resources: &[Resource], path: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources
        .iter()
        .filter(|resource| group_version(resource) == path)
    {
        paths.extend(operation::paths(resource, parameter));
        schemas.insert(schema_name(resource), operation::schema(resource));
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": version },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn parameter(parameter: &Parameter) -> Value {
    let mut written = json!({
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": { "type": parameter.kind, "uniqueItems": true },
    });
    if parameter.place == "path" {
        written["required"] = true.into();
    }
    written
}
