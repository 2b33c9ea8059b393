use std::sync::Arc;

use swiftlet_client::api::{RawList, RawWatch, Selection};
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

async fn report_node(reports: &Reports, metadata: Value) {
    let node = json!({"kind": "Node", "metadata": metadata, "status": {}});
    reports.node(&encode(&node)).await.unwrap();
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
    reports.lease(40).await.unwrap();
    assert!(get(&api, &node_name()).await.is_some());
    // Nothing to repair, nothing written but the lease.
    let before = api.calls().len();
    reports.lease(40).await.unwrap();
    assert_eq!(api.calls().len(), before + 1);
}

#[tokio::test]
async fn an_event_that_happens_again_is_counted_and_not_stored_twice() {
    let (api, reports, _) = with_pod("worker").await;
    let event = |count: u32, at: &str| {
        encode(&json!({
            "kind": "Event",
            "metadata": {"name": "web.1", "namespace": "default"},
            "reason": "FailedMount",
            "count": count,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": at,
        }))
    };
    reports
        .event(event(1, "2026-01-01T00:00:00Z"))
        .await
        .unwrap();
    reports
        .event(event(2, "2026-01-01T00:05:00Z"))
        .await
        .unwrap();
    let name = ObjectName::new(resources::EVENTS, "default", "web.1");
    let stored = get(&api, &name).await.unwrap();
    assert_eq!(stored["count"], 2);
    assert_eq!(stored["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(stored["lastTimestamp"], "2026-01-01T00:05:00Z");
    let gone = api.delete(&name, DeleteParameters::default()).await;
    gone.unwrap();
    reports
        .event(event(3, "2026-01-01T01:05:00Z"))
        .await
        .unwrap();
    let stored = get(&api, &name).await.unwrap();
    assert_eq!(stored["count"], 3);
}

/// An API in which somebody else writes a condition just before the first patch arrives.
struct Racing {
    inner: Arc<FakeApi>,
    others: Mutex<Option<Value>>,
}

type Answer<'a, T> = futures::future::BoxFuture<'a, Result<T, ApiError>>;

impl Api for Racing {
    fn get<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Bytes> {
        self.inner.get(name)
    }

    fn list<'a>(&'a self, selection: &'a Selection) -> Answer<'a, RawList> {
        self.inner.list(selection)
    }

    fn watch(&self, selection: &Selection, since: u64) -> Result<RawWatch, ApiError> {
        self.inner.watch(selection, since)
    }

    fn create<'a>(&'a self, name: &'a ObjectName, body: Bytes) -> Answer<'a, Bytes> {
        self.inner.create(name, body)
    }

    fn update<'a>(&'a self, name: &'a ObjectName, body: Bytes) -> Answer<'a, Bytes> {
        self.inner.update(name, body)
    }

    fn patch<'a>(
        &'a self,
        name: &'a ObjectName,
        kind: PatchKind,
        body: Bytes,
    ) -> Answer<'a, Bytes> {
        let others = self.others.lock().unwrap().take();
        Box::pin(async move {
            if let Some(condition) = others {
                let status = encode(&json!({"status": {"conditions": [condition]}}));
                self.inner.patch(name, PatchKind::Strategic, status).await?;
            }
            self.inner.patch(name, kind, body).await
        })
    }

    fn delete<'a>(
        &'a self,
        name: &'a ObjectName,
        parameters: DeleteParameters,
    ) -> Answer<'a, Bytes> {
        self.inner.delete(name, parameters)
    }
}

#[tokio::test]
async fn a_condition_that_comes_while_a_status_is_on_its_way_stays() {
    let (inner, _, key) = with_pod("worker").await;
    let others = json!({"type": "DisruptionTarget", "status": "True"});
    let racing = Racing {
        inner: inner.clone(),
        others: Mutex::new(Some(others.clone())),
    };
    let reports = Reports::new(Arc::new(racing), "worker");
    let ready = json!({"type": "Ready", "status": "True"});
    let status = json!({"phase": "Running", "conditions": [ready]});
    let report = |pod: ObjectKey, status: &Value| PodStatusReport {
        pod: Some(pod),
        status_json: encode(status),
    };
    reports
        .pod_status(report(key.clone(), &status))
        .await
        .unwrap();
    let pod = get(&inner, &pod_name()).await.unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["conditions"], json!([ready, others]));
    // A pod of another uid is left alone, and that is not tried again and again.
    let other = ObjectKey {
        uid: "another".into(),
        ..key
    };
    let ended = json!({"phase": "Failed"});
    let before = inner.calls().len();
    assert!(reports.pod_status(report(other, &ended)).await.is_err());
    let patches = inner.calls().split_off(before).into_iter();
    assert_eq!(patches.filter(|call| call.verb == "patch").count(), 1);
    let malformed = reports.pod_status(report(ObjectKey::default(), &json!("no status")));
    assert!(matches!(malformed.await, Err(ReportError::Malformed(_))));
    let pod = get(&inner, &pod_name()).await.unwrap();
    assert_eq!(pod["status"]["phase"], "Running");
}
