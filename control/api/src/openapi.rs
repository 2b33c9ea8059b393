//! OpenAPI documents: enough for `kubectl` to leave field validation and dry run to the server.
//!
//! `kubectl` asks `/openapi/v3` whether the PATCH of a kind knows the query parameters
//! `fieldValidation` and `dryRun`, and validates by itself only where it does not. The PATCH
//! operations have no request body here: with one, `kubectl apply` would take merge keys from our
//! schemas, which do not have them, instead of from its own types.

mod operation;
mod v2;
mod v3;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

use crate::registry::Resource;

/// The encoded documents by path.
#[derive(Clone, Debug)]
pub struct Documents(BTreeMap<String, Bytes>);

impl Documents {
    /// Makes the documents of all `resources`; `version` is the server's (`v1.34.0`).
    pub fn new(resources: &[Resource], version: &str) -> Self {
        let mut documents = BTreeMap::new();
        let mut put = |path: &str, document: &Value| {
            documents.insert(path.to_owned(), Bytes::from(document.to_string()));
        };
        let groups = group_versions(resources);
        put("/openapi/v3", &v3::index(&groups));
        for path in &groups {
            put(
                &format!("/openapi/v3/{path}"),
                &v3::document(resources, path, version),
            );
        }
        put("/openapi/v2", &v2::document(resources, version));
        Self(documents)
    }

    /// The JSON document at a path, without its query. `/openapi/v2` is JSON alone: a client that
    /// takes nothing but protobuf is to be answered 406, and does without.
    pub fn get(&self, path: &str) -> Option<&Bytes> {
        self.0.get(path.trim_end_matches('/'))
    }
}

/// `api/v1`, `apis/apps/v1` …
fn group_versions(resources: &[Resource]) -> Vec<String> {
    let mut paths: Vec<String> = resources.iter().map(group_version).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The first part of a resource's paths.
fn group_version(resource: &Resource) -> String {
    let version = resource.api_version();
    if resource.name.group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{version}")
    }
}

/// The name of a kind's schema: `io.k8s.api.apps.v1.Deployment`.
fn schema_name(resource: &Resource) -> String {
    let group = resource.name.group.split('.').next().unwrap_or_default();
    let group = if group.is_empty() { "core" } else { group };
    format!(
        "io.k8s.api.{group}.{}.{}",
        resource.name.version, resource.kind
    )
}

#[cfg(test)]
mod tests;
