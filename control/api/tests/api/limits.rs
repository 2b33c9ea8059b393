//! What the verbs refuse, bound and keep, through the local door.

use futures::StreamExt;
use serde_json::json;
use swiftlet_client::api::{
    DeleteParameters, ObjectName, PatchKind, Selection, WatchKind, resources,
};

use crate::support::{config_map, encoded, inside, pod, pod_name, user};

#[tokio::test]
async fn only_what_is_collected_waits_for_its_dependents() {
    let server = inside().await;
    let map = config_map("cm", json!({}));
    for policy in ["Foreground", "Orphan"] {
        server
            .create(resources::CONFIG_MAPS, map.clone())
            .await
            .unwrap();
        server.create(resources::PODS, pod("web")).await.unwrap();
        let parameters = DeleteParameters {
            propagation_policy: Some(policy.into()),
            ..DeleteParameters::default()
        };
        let name = ObjectName::new(resources::CONFIG_MAPS, "default", "cm");
        server.door.delete(&name, parameters.clone()).await.unwrap();
        assert!(server.get(&name).await.unwrap_err().is_not_found());
        let name = pod_name("web");
        server.door.delete(&name, parameters).await.unwrap();
        let waiting = server.get(&name).await.unwrap();
        assert!(waiting["metadata"]["finalizers"].is_array());
        server
            .merge(&name, json!({ "metadata": { "finalizers": null } }))
            .await
            .unwrap();
        assert!(server.get(&name).await.unwrap_err().is_not_found());
    }
}

#[tokio::test]
async fn the_first_namespaces_stay() {
    let server = inside().await;
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let name = ObjectName::new(resources::NAMESPACES, "", name);
        assert_eq!(server.delete(&name, None).await.unwrap_err().code(), 403);
    }
}

#[tokio::test]
async fn a_node_reads_no_secrets_by_itself() {
    let server = inside().await;
    let node = server
        .api
        .local(user("system:node:worker", &["system:nodes"]));
    for resource in [
        resources::SECRETS,
        resources::CONFIG_MAPS,
        resources::SERVICE_ACCOUNTS,
    ] {
        let name = ObjectName::new(resource, "default", "default");
        assert_eq!(node.get(&name).await.unwrap_err().code(), 403);
    }
}

#[tokio::test]
async fn a_patch_cannot_make_an_object_something_else() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    for value in [json!(null), json!([]), json!("text"), json!(1)] {
        let patch = json!([{ "op": "replace", "path": "", "value": value }]);
        let name = pod_name("web");
        let patched = server.door.patch(&name, PatchKind::Json, encoded(&patch));
        assert_eq!(patched.await.unwrap_err().code(), 400);
    }
}

#[tokio::test]
async fn a_binding_brings_only_valid_annotations() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    let name = pod_name("web").with_subresource("binding");
    for (annotations, code) in [
        (json!({ "a": 1 }), 400),
        (json!("text"), 400),
        (json!({ "not a key": "x" }), 422),
    ] {
        let binding = json!({
            "metadata": { "annotations": annotations },
            "target": { "kind": "Node", "name": "worker" },
        });
        let refused = server.door.create(&name, encoded(&binding)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    server.bind(&pod_name("web"), "worker").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_inside_the_process_has_no_end() {
    let server = inside().await;
    let selection = Selection::all(resources::PODS);
    let revision = server.revision(resources::PODS).await;
    let mut watch = server.door.watch(&selection, revision).unwrap();
    let started = tokio::time::Instant::now();
    while started.elapsed() < std::time::Duration::from_hours(2) {
        let event = watch.next().await.expect("the watch goes on").unwrap();
        assert_eq!(event.kind, WatchKind::Bookmark);
    }
}
