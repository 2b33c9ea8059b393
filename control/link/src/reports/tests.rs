use std::sync::Arc;

use swiftlet_client::fake::FakeApi;

use super::*;

async fn create(api: &FakeApi, resource: swiftlet_client::api::ResourceName, object: Value) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = ObjectName::new(resource, namespace, "");
    api.create(&name, encode(&object)).await.unwrap();
}

async fn get(api: &FakeApi, name: &ObjectName) -> Option<Value> {
    let found = api.get(name).await.ok()?;
    decode(&found, "object").ok()
}

fn pod_name() -> ObjectName {
    ObjectName::new(resources::PODS, "default", "web")
}

async fn with_pod(node: &str) -> (Arc<FakeApi>, Reports, ObjectKey) {
    let api = FakeApi::new();
    let pod = json!({
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": node},
    });
    create(&api, resources::PODS, pod).await;
    let pod = get(&api, &pod_name()).await.unwrap();
    let key = ObjectKey {
        namespace: "default".into(),
        name: "web".into(),
        uid: pod["metadata"]["uid"].as_str().unwrap().into(),
    };
    let reports = Reports::new(api.clone(), "worker");
    (api, reports, key)
}

#[tokio::test]
async fn a_node_removes_only_pods_of_its_own_that_are_being_deleted() {
    let (api, reports, key) = with_pod("worker").await;
    let without_uid = ObjectKey {
        uid: String::new(),
        ..key.clone()
    };
    let refused = reports.pod_gone(without_uid).await.unwrap_err();
    assert!(matches!(refused, ReportError::Malformed(_)), "{refused}");
    let alive = reports.pod_gone(key.clone()).await.unwrap_err();
    assert!(matches!(alive, ReportError::Refused(_)), "{alive}");
    let predecessor = ObjectKey {
        uid: "another".into(),
        ..key.clone()
    };
    reports.pod_gone(predecessor).await.unwrap();
    api.delete(&pod_name(), DeleteParameters::default())
        .await
        .unwrap();
    assert!(get(&api, &pod_name()).await.is_some());
    reports.pod_gone(key.clone()).await.unwrap();
    assert!(get(&api, &pod_name()).await.is_none());
    reports.pod_gone(key).await.unwrap();

    let (api, reports, key) = with_pod("elsewhere").await;
    api.delete(&pod_name(), DeleteParameters::default())
        .await
        .unwrap();
    let foreign = reports.pod_gone(key).await.unwrap_err();
    assert!(matches!(foreign, ReportError::Refused(_)), "{foreign}");
    assert!(get(&api, &pod_name()).await.is_some());
}

fn node_name() -> ObjectName {
    ObjectName::new(resources::NODES, "", "worker")
}

/// Reports a Node. The fake takes no JSON patches, so that the status does not arrive.
async fn report_node(reports: &Reports, metadata: Value) {
    let node = json!({"kind": "Node", "metadata": metadata, "status": {}});
    let _ = reports.node(&encode(&node)).await;
}

#[tokio::test]
async fn a_report_without_annotations_leaves_those_of_others() {
    let api = FakeApi::new();
    let reports = Reports::new(api.clone(), "worker");
    let metadata = json!({"name": "worker", "annotations": {"mine": "x"}});
    create(&api, resources::NODES, json!({"metadata": metadata})).await;
    report_node(&reports, json!({"name": "worker", "labels": {"a": "b"}})).await;
    let node = get(&api, &node_name()).await.unwrap();
    assert_eq!(node["metadata"]["annotations"], json!({"mine": "x"}));
    assert_eq!(node["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test]
async fn a_lease_brings_back_a_node_that_was_deleted() {
    let api = FakeApi::new();
    let reports = Reports::new(api.clone(), "worker");
    reports.lease(40).await.unwrap();
    assert!(get(&api, &node_name()).await.is_none());
    report_node(&reports, json!({"name": "worker"})).await;
    api.delete(&node_name(), DeleteParameters::default())
        .await
        .unwrap();
    let _ = reports.lease(40).await;
    assert!(get(&api, &node_name()).await.is_some());
    // Nothing to repair, nothing written but the lease.
    let before = api.calls().len();
    reports.lease(40).await.unwrap();
    assert_eq!(api.calls().len(), before + 1);
}
