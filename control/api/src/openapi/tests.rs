//! Promises of the documents.

use serde_json::Value;

use super::*;
use crate::strategy::registry;

fn document(path: &str) -> Value {
    let documents = Documents::new(registry(), "v1.34.0");
    serde_json::from_slice(documents.get(path).expect("the document exists")).expect("JSON")
}

/// What kubectl's verifier looks for: a PATCH of the kind with the parameter in its query.
fn supports(document: &Value, resource: &Resource, parameter: &str) -> bool {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .values()
        .filter_map(|item| item.get("patch"))
        .any(|patch| {
            let kind = &patch["x-kubernetes-group-version-kind"];
            let found = patch["parameters"].as_array().expect("parameters").iter();
            kind["kind"] == resource.kind
                && kind["group"] == resource.name.group
                && kind["version"] == resource.name.version
                && found
                    .into_iter()
                    .any(|one| one["name"] == parameter && one["in"] == "query")
        })
}

#[test]
fn kubectl_finds_field_validation_and_dry_run_for_every_kind() {
    let index = document("/openapi/v3");
    for resource in registry() {
        let path = group_version(resource);
        let url = index["paths"][&path]["serverRelativeURL"]
            .as_str()
            .expect("a link");
        for parameter in ["fieldValidation", "dryRun"] {
            assert!(
                supports(&document(url), resource, parameter),
                "{resource:?} {parameter}"
            );
            assert!(
                supports(&document("/openapi/v2"), resource, parameter),
                "{resource:?}"
            );
        }
    }
}

#[test]
fn kubectl_takes_merge_keys_from_its_own_types() {
    for path in ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"] {
        for item in document(path)["paths"].as_object().expect("paths").values() {
            assert_eq!(item.pointer("/patch/requestBody"), None);
        }
    }
}

#[test]
fn every_kind_has_a_schema_with_its_name() {
    let core = document("/openapi/v3/api/v1");
    let pod = &core["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
    let lease = document("/openapi/v3/apis/coordination.k8s.io/v1");
    assert!(lease["components"]["schemas"]["io.k8s.api.coordination.v1.Lease"].is_object());
    assert!(
        Documents::new(registry(), "")
            .get("/openapi/v3/apis/batch/v1")
            .is_none()
    );
}
