//! The verbs through the local door.

use serde_json::json;
use swiftlet_client::api::{ObjectName, PatchKind, Selection, WatchKind, resources};
use swiftlet_store::Limits;

use crate::support::{self, config_map, decoded, encoded, inside, next, pod, pod_name, user};

#[tokio::test]
async fn a_pod_lives_from_create_to_graceful_delete() {
    let server = inside().await;
    let created = server.create(resources::PODS, pod("web")).await.unwrap();
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(created["spec"]["terminationGracePeriodSeconds"], 30);
    let name = pod_name("web");
    assert_eq!(server.get(&name).await.unwrap(), created);
    server.bind(&name, "worker").await.unwrap();
    let terminating = server.delete(&name, None).await.unwrap();
    assert_eq!(terminating["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(terminating["metadata"]["deletionTimestamp"].is_string());
    let longer = server.delete(&name, Some(60)).await.unwrap();
    assert_eq!(longer, terminating, "a second delete may only shorten");
    let shorter = server.delete(&name, Some(5)).await.unwrap();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    server.delete(&name, Some(0)).await.unwrap();
    let gone = server.get(&name).await.unwrap_err();
    assert_eq!(gone.to_string(), "pods \"web\" not found");
    assert_eq!((gone.code(), gone.reason()), (404, "NotFound"));
}

#[tokio::test]
async fn a_pod_without_a_node_is_deleted_at_once() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    server.delete(&pod_name("web"), None).await.unwrap();
    assert!(
        server
            .get(&pod_name("web"))
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    let taken = server
        .create(resources::PODS, pod("web"))
        .await
        .unwrap_err();
    assert!(taken.is_already_exists());
    assert_eq!(taken.to_string(), "pods \"web\" already exists");
    let mut generated = pod("");
    generated["metadata"] = json!({ "namespace": "default", "generateName": "web-" });
    let one = server
        .create(resources::PODS, generated.clone())
        .await
        .unwrap();
    let two = server.create(resources::PODS, generated).await.unwrap();
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn an_update_of_an_old_version_is_a_conflict() {
    let server = inside().await;
    let name = ObjectName::new(resources::CONFIG_MAPS, "default", "cm");
    let old = server
        .create(
            resources::CONFIG_MAPS,
            config_map("cm", json!({ "a": "1" })),
        )
        .await;
    let mut old = old.unwrap();
    server
        .merge(&name, json!({ "data": { "a": "2" } }))
        .await
        .unwrap();
    old["data"]["a"] = "3".into();
    let refused = server.update(&name, &old).await.unwrap_err();
    assert!(refused.is_conflict());
    assert_eq!(
        refused.to_string(),
        "Operation cannot be fulfilled on configmaps \"cm\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
}

#[tokio::test]
async fn an_update_that_changes_nothing_takes_no_revision() {
    let server = inside().await;
    let name = ObjectName::new(resources::CONFIG_MAPS, "default", "cm");
    let created = server.create(
        resources::CONFIG_MAPS,
        config_map("cm", json!({ "a": "1" })),
    );
    let created = created.await.unwrap();
    assert_eq!(server.update(&name, &created).await.unwrap(), created);
    assert_eq!(
        server
            .merge(&name, json!({ "data": { "a": "1" } }))
            .await
            .unwrap(),
        created
    );
}

#[tokio::test]
async fn patches_at_the_same_time_all_count() {
    let server = inside().await;
    let name = ObjectName::new(resources::CONFIG_MAPS, "default", "cm");
    server
        .create(resources::CONFIG_MAPS, config_map("cm", json!({})))
        .await
        .unwrap();
    let patches = (0..32).map(|index| {
        let (server, name) = (&server, &name);
        async move {
            let key = format!("k{index}");
            server
                .merge(name, json!({ "data": { key: "v" } }))
                .await
                .unwrap();
        }
    });
    futures::future::join_all(patches).await;
    let now = server.get(&name).await.unwrap();
    assert_eq!(now["data"].as_object().unwrap().len(), 32);
}

#[tokio::test]
async fn a_status_update_changes_the_status_alone() {
    let server = inside().await;
    let created = server.create(resources::PODS, pod("web")).await.unwrap();
    let mut changed = created.clone();
    changed["status"]["phase"] = "Running".into();
    changed["spec"]["nodeName"] = "elsewhere".into();
    changed["metadata"]["labels"]["app"] = "other".into();
    let name = ObjectName::status(resources::PODS, "default", "web");
    let stored = server.update(&name, &changed).await.unwrap();
    assert_eq!(stored["status"]["phase"], "Running");
    assert_eq!(stored["spec"], created["spec"]);
    assert_eq!(stored["metadata"]["labels"], created["metadata"]["labels"]);
    let mut specification = stored.clone();
    specification["status"]["phase"] = "Failed".into();
    let kept = server
        .update(&pod_name("web"), &specification)
        .await
        .unwrap();
    assert_eq!(kept["status"]["phase"], "Running");
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    let bound = server.bind(&pod_name("web"), "worker").await.unwrap();
    assert_eq!(bound["spec"]["nodeName"], "worker");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let again = server.bind(&pod_name("web"), "other").await.unwrap_err();
    assert!(again.is_conflict());
    assert_eq!(
        again.to_string(),
        "Operation cannot be fulfilled on pods/binding \"web\": pod web is already assigned to \
         node \"worker\""
    );
}

#[tokio::test]
async fn a_watch_sees_every_change_once_and_in_order() {
    let server = inside().await;
    let start = server.revision(resources::PODS).await;
    let mut watch = server
        .door
        .watch(&Selection::all(resources::PODS), start)
        .unwrap();
    server.create(resources::PODS, pod("web")).await.unwrap();
    server.bind(&pod_name("web"), "worker").await.unwrap();
    server.delete(&pod_name("web"), Some(0)).await.unwrap();
    let mut last = start;
    for kind in [WatchKind::Added, WatchKind::Modified, WatchKind::Deleted] {
        let event = next(&mut watch).await.unwrap();
        assert_eq!(event.kind, kind);
        assert!(event.resource_version > last);
        last = event.resource_version;
        let object = decoded(&event.object);
        assert_eq!(object["metadata"]["resourceVersion"], last.to_string());
    }
}

#[tokio::test]
async fn a_watch_resumes_where_it_stopped() {
    let server = inside().await;
    let first = server.create(resources::PODS, pod("one")).await.unwrap();
    let seen: u64 = first["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    server.create(resources::PODS, pod("two")).await.unwrap();
    let mut watch = server
        .door
        .watch(&Selection::all(resources::PODS), seen)
        .unwrap();
    let event = next(&mut watch).await.unwrap();
    assert_eq!(decoded(&event.object)["metadata"]["name"], "two");
}

#[tokio::test]
async fn an_object_that_leaves_a_selection_is_deleted_from_it() {
    let server = inside().await;
    let start = server.revision(resources::PODS).await;
    let mut unbound = Selection::all(resources::PODS);
    unbound.field_selector = "spec.nodeName=".into();
    let mut bound = Selection::all(resources::PODS);
    bound.field_selector = "spec.nodeName=worker".into();
    let mut left = server.door.watch(&unbound, start).unwrap();
    let mut entered = server.door.watch(&bound, start).unwrap();
    server.create(resources::PODS, pod("web")).await.unwrap();
    server.bind(&pod_name("web"), "worker").await.unwrap();
    assert_eq!(next(&mut left).await.unwrap().kind, WatchKind::Added);
    let event = next(&mut left).await.unwrap();
    assert_eq!(event.kind, WatchKind::Deleted);
    let shown = decoded(&event.object);
    assert_eq!(
        shown["metadata"]["resourceVersion"],
        event.resource_version.to_string()
    );
    let event = next(&mut entered).await.unwrap();
    assert_eq!(event.kind, WatchKind::Added);
    assert_eq!(decoded(&event.object)["spec"]["nodeName"], "worker");
}

#[tokio::test]
async fn a_watch_from_too_far_back_is_told_to_list_again() {
    let limits = Limits {
        ring_changes: 4,
        ..Limits::default()
    };
    let server = support::inside_with(limits).await;
    let start = server.revision(resources::PODS).await;
    for index in 0..8 {
        server
            .create(resources::PODS, pod(&format!("p{index}")))
            .await
            .unwrap();
    }
    let refused = server
        .door
        .watch(&Selection::all(resources::PODS), start)
        .err()
        .unwrap();
    assert!(refused.is_expired());
    assert!(refused.to_string().starts_with("too old resource version"));
}

#[tokio::test]
async fn an_unknown_field_selector_is_refused() {
    let server = inside().await;
    let mut selection = Selection::all(resources::PODS);
    selection.field_selector = "spec.colour=red".into();
    let refused = server.door.list(&selection).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.to_string()),
        (400, "field label not supported: spec.colour".into())
    );
}

#[tokio::test]
async fn an_object_waits_for_its_finalizers() {
    let server = inside().await;
    let mut object = config_map("cm", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.create(resources::CONFIG_MAPS, object).await.unwrap();
    let name = ObjectName::new(resources::CONFIG_MAPS, "default", "cm");
    let waiting = server.delete(&name, None).await.unwrap();
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    let more = json!({ "metadata": { "finalizers": ["example.com/wait", "example.com/more"] } });
    assert_eq!(server.merge(&name, more).await.unwrap_err().code(), 422);
    server
        .merge(&name, json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    assert!(server.get(&name).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_namespace_takes_nothing_new_while_it_ends_and_goes_when_it_is_finalized() {
    let server = inside().await;
    let namespace = json!({ "metadata": { "name": "demo" } });
    server
        .create(resources::NAMESPACES, namespace)
        .await
        .unwrap();
    let name = ObjectName::new(resources::NAMESPACES, "", "demo");
    let ending = server.delete(&name, None).await.unwrap();
    assert_eq!(ending["status"]["phase"], "Terminating");
    let mut late = config_map("late", json!({}));
    late["metadata"]["namespace"] = "demo".into();
    let refused = server
        .create(resources::CONFIG_MAPS, late)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), refused.to_string()),
        (
            403,
            "configmaps \"late\" is forbidden: unable to create new content in namespace demo \
             because it is being terminated"
                .into()
        )
    );
    let mut finalized = ending.clone();
    finalized["spec"]["finalizers"] = json!([]);
    server
        .update(&name.clone().with_subresource("finalize"), &finalized)
        .await
        .unwrap();
    assert!(server.get(&name).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_namespace_must_exist_before_its_content() {
    let server = inside().await;
    let mut object = config_map("cm", json!({}));
    object["metadata"]["namespace"] = "nowhere".into();
    let refused = server
        .create(resources::CONFIG_MAPS, object)
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn a_scale_is_another_view_of_the_replicas() {
    let server = inside().await;
    let deployment = json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
            },
        },
    });
    server
        .create(resources::DEPLOYMENTS, deployment)
        .await
        .unwrap();
    let name = ObjectName::new(resources::DEPLOYMENTS, "default", "web");
    let scale_name = name.clone().with_subresource("scale");
    let scale = server.get(&scale_name).await.unwrap();
    assert_eq!(
        (&scale["kind"], &scale["spec"]["replicas"]),
        (&json!("Scale"), &json!(2))
    );
    assert_eq!(scale["status"]["selector"], "app=web");
    let scaled = server
        .merge(&scale_name, json!({ "spec": { "replicas": 5 } }))
        .await
        .unwrap();
    assert_eq!(scaled["spec"]["replicas"], 5);
    let now = server.get(&name).await.unwrap();
    assert_eq!(
        (&now["spec"]["replicas"], &now["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    let refused = server
        .merge(&scale_name, json!({ "spec": { "replicas": -1 } }))
        .await;
    assert_eq!(refused.unwrap_err().code(), 422);
}

#[tokio::test]
async fn a_user_without_rights_is_told_what_is_missing() {
    let server = inside().await;
    let stranger = server.api.local(user("jane", &["system:authenticated"]));
    let mut selection = Selection::all(resources::PODS);
    selection.namespace = Some("default".into());
    let refused = stranger.list(&selection).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.to_string()),
        (
            403,
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in \
             the namespace \"default\""
                .into()
        )
    );
    let node = server
        .api
        .local(user("system:node:worker", &["system:nodes"]));
    node.list(&selection).await.unwrap();
    let refused = node
        .create(&pod_name("web"), encoded(&pod("web")))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), 403);
    let part = server.api.local(user("system:kube-scheduler", &[]));
    part.create(&pod_name(""), encoded(&pod("web")))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_stored_is_what_every_reader_gets() {
    let server = inside().await;
    let created = server.create(resources::PODS, pod("web")).await.unwrap();
    let list = server
        .door
        .list(&Selection::all(resources::PODS))
        .await
        .unwrap();
    let one = server.door.get(&pod_name("web")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(
        list.items[0].as_ptr(),
        one.as_ptr(),
        "bytes are shared, not copied"
    );
    assert_eq!(decoded(&one), created);
}

#[tokio::test]
async fn a_json_patch_can_hold_for_one_revision_alone() {
    let server = inside().await;
    let made = server.create(resources::PODS, pod("web")).await.unwrap();
    let name = ObjectName::status(resources::PODS, "default", "web");
    let patch = |phase: &str| {
        let revision = &made["metadata"]["resourceVersion"];
        encoded(&json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": revision },
            { "op": "add", "path": "/status", "value": { "phase": phase } },
        ]))
    };
    let running = patch("Running");
    let running = server.door.patch(&name, PatchKind::Json, running).await;
    assert_eq!(decoded(&running.unwrap())["status"]["phase"], "Running");
    let late = patch("Failed");
    let late = server.door.patch(&name, PatchKind::Json, late).await;
    assert_eq!(late.unwrap_err().code(), 422);
}
