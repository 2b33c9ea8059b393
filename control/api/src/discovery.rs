//! What is served: versions, groups and resources, for clients that ask.

pub(crate) mod openapi_protobuf;

use serde_json::{Value, json};
use swiftlet_client::api::ApiError;

use crate::error;
use crate::registry::Resource;
use crate::strategy;
use crate::verb::review::is_review;

/// The Kubernetes version whose API is served.
pub(crate) const VERSION: &str = "v1.34.0";
/// The minor part of it.
const MINOR: &str = "34";

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("{VERSION}+swiftlet"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// `/`.
pub(crate) fn root() -> Value {
    let mut paths = vec!["/api".to_string(), "/api/v1".into(), "/apis".into()];
    for (group, version) in groups() {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/{version}"));
    }
    paths.extend(
        [
            "/.well-known/openid-configuration",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ]
        .map(Into::into),
    );
    json!({ "paths": paths })
}

/// `/api`.
pub(crate) fn legacy_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`.
pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = groups()
        .into_iter()
        .map(|(group, v)| group_entry(group, v))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// The custom resources: none. They cannot be made here and stand in no discovery document, but
/// before kubectl says that it knows no such kind, it asks whether a custom resource bears it.
pub(crate) fn no_custom_resources() -> Value {
    json!({
        "kind": "CustomResourceDefinitionList",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": { "resourceVersion": "1" },
        "items": [],
    })
}

/// `/apis/<group>`.
pub(crate) fn group(name: &str) -> Result<Value, ApiError> {
    let (group, version) = groups()
        .into_iter()
        .find(|(group, _)| *group == name)
        .ok_or_else(error::unknown_path)?;
    let mut entry = group_entry(group, version);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Ok(entry)
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub(crate) fn resource_list(group: &str, version: &str) -> Value {
    let resources: Vec<Value> = of_version(group, version).flat_map(listed).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": resources,
    })
}

/// `APIGroupDiscoveryList` of `/api` (`legacy`) or of `/apis`.
pub(crate) fn aggregated(legacy: bool, version: &str) -> Value {
    let groups = if legacy { vec![("", "v1")] } else { groups() };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, group_version)| {
            let resources: Vec<Value> = of_version(group, group_version)
                .map(aggregated_resource)
                .collect();
            let metadata = if group.is_empty() {
                json!({ "creationTimestamp": null })
            } else {
                json!({ "name": group, "creationTimestamp": null })
            };
            json!({
                "metadata": metadata,
                "versions": [{
                    "version": group_version,
                    "resources": resources,
                    "freshness": "Current",
                }],
            })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

/// The groups but the core one, in order, with their version.
fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = strategy::registry()
        .iter()
        .chain(strategy::reviews())
        .filter(|resource| !resource.name.group.is_empty())
        .map(|resource| (resource.name.group, resource.name.version))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn group_entry(group: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

fn of_version(group: &str, version: &str) -> impl Iterator<Item = &'static Resource> {
    strategy::registry()
        .iter()
        .chain(strategy::reviews())
        .filter(move |resource| resource.name.group == group && resource.name.version == version)
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    if is_review(&resource.name) {
        &["create"]
    } else {
        &VERBS
    }
}

/// A resource and its subresources in the older form.
fn listed(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.name.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let mut entries = vec![entry];
    for subresource in resource.subresources {
        let (group, version, kind) = subresource_kind(resource, subresource);
        let mut entry = json!({
            "name": format!("{}/{subresource}", resource.name.plural),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": subresource_verbs(subresource),
        });
        if !group.is_empty() && group != resource.name.group {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entries.push(entry);
    }
    entries
}

fn aggregated_resource(resource: &Resource) -> Value {
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version, kind) = subresource_kind(resource, subresource);
            json!({
                "subresource": subresource,
                "responseKind": { "group": group, "version": version, "kind": kind },
                "verbs": subresource_verbs(subresource),
            })
        })
        .collect();
    let mut entry = json!({
        "resource": resource.name.plural,
        "responseKind": {
            "group": resource.name.group,
            "version": resource.name.version,
            "kind": resource.kind,
        },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn subresource_kind(
    resource: &Resource,
    subresource: &str,
) -> (&'static str, &'static str, &'static str) {
    match subresource {
        "scale" => ("autoscaling", "v1", "Scale"),
        "binding" => ("", "v1", "Binding"),
        "eviction" => ("policy", "v1", "Eviction"),
        "token" => ("authentication.k8s.io", "v1", "TokenRequest"),
        "attach" => ("", "v1", "PodAttachOptions"),
        "exec" => ("", "v1", "PodExecOptions"),
        "portforward" => ("", "v1", "PodPortForwardOptions"),
        _ => (resource.name.group, resource.name.version, resource.kind),
    }
}

fn subresource_verbs(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "binding" | "eviction" | "token" => &["create"],
        "finalize" => &["update"],
        "attach" | "exec" | "portforward" => &["create", "get"],
        "log" => &["get"],
        _ => &["get", "patch", "update"],
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.into()
    } else {
        format!("{group}/{version}")
    }
}

/// The architecture's name in Go's words.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
