//! Subresources of pods: ephemeral containers, resizes, evictions.

use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, PatchKind};

use crate::support::{Inside, decoded, encoded, inside, pod, pod_name};
use swiftlet_client::api::resources;

async fn patched(
    server: &Inside,
    subresource: &'static str,
    patch: Value,
) -> Result<Value, ApiError> {
    let name = pod_name("web").with_subresource(subresource);
    let patch = encoded(&patch);
    let answer = server.door.patch(&name, PatchKind::Strategic, patch).await;
    answer.map(|object| decoded(&object))
}

fn debugger(name: &str) -> Value {
    json!({ "spec": { "ephemeralContainers": [
        { "name": name, "image": "busybox", "stdin": true, "resources": {} },
    ] } })
}

#[tokio::test]
async fn ephemeral_containers_are_added_to_a_pod_and_stay() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    let part = "ephemeralcontainers";
    let made = patched(&server, part, debugger("one")).await.unwrap();
    assert_eq!(made["metadata"]["generation"], 2);
    let made = patched(&server, part, debugger("two")).await.unwrap();
    let added = made["spec"]["ephemeralContainers"].as_array().unwrap();
    assert_eq!(added.len(), 2);
    assert_eq!(added[0]["imagePullPolicy"], "Always");
    let cases = [
        (
            json!({ "spec": { "ephemeralContainers": [{ "name": "one", "$patch": "delete" }] } }),
            "may not be removed",
        ),
        (
            json!({ "spec": { "ephemeralContainers": [{ "name": "one", "image": "other" }] } }),
            "may not be changed",
        ),
        (
            debugger("main"),
            "spec.ephemeralContainers[0].name: Duplicate value: \"main\"",
        ),
        (
            json!({ "spec": { "ephemeralContainers": [
                { "name": "x", "image": "b", "ports": [{ "containerPort": 1 }] },
            ] } }),
            "cannot be set for an Ephemeral Container",
        ),
        (
            json!({ "spec": { "ephemeralContainers": [
                { "name": "x", "image": "b", "targetContainerName": "none" },
            ] } }),
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"none\"",
        ),
    ];
    for (patch, why) in cases {
        let error = patched(&server, part, patch).await.unwrap_err();
        assert!(
            error.code() == 422 && error.to_string().contains(why),
            "{error}"
        );
    }
    let mut early = pod("early");
    early["spec"]["ephemeralContainers"] = debugger("x")["spec"]["ephemeralContainers"].clone();
    let error = server.create(resources::PODS, early).await.unwrap_err();
    assert!(
        error.to_string().contains("cannot be set on create"),
        "{error}"
    );
}

fn resources_of(cpu: &str) -> Value {
    json!({ "spec": { "containers": [
        { "name": "main", "resources": { "requests": { "cpu": cpu } } },
    ] } })
}

#[tokio::test]
async fn a_resize_changes_amounts_and_nothing_else() {
    let server = inside().await;
    let mut object = pod("web");
    object["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "100m", "memory": "64Mi" } });
    server.create(resources::PODS, object).await.unwrap();
    let mut patch = resources_of("200m");
    patch["spec"]["containers"][0]["image"] = "other".into();
    let made = patched(&server, "resize", patch).await.unwrap();
    let container = &made["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "200m");
    assert_eq!(container["image"], "busybox:1.35", "the rest is dropped");
    assert_eq!(made["metadata"]["generation"], 2);
    let resources = |amounts: Value| {
        let container = json!({ "name": "main", "resources": amounts });
        json!({ "spec": { "containers": [container] } })
    };
    let cases = [
        (
            resources(json!({ "requests": { "cpu": null } })),
            "resource requests cannot be removed",
        ),
        (
            resources(json!({ "limits": { "cpu": "200m", "memory": "64Mi" } })),
            "Pod QOS Class may not change as a result of resizing",
        ),
        (
            resources(json!({ "requests": { "ephemeral-storage": "1Gi" } })),
            "only cpu and memory resources are mutable",
        ),
        (
            json!({ "spec": { "containers": [{ "name": "more", "image": "x" }] } }),
            "containers may not be added or removed on resize",
        ),
    ];
    for (patch, why) in cases {
        let error = patched(&server, "resize", patch).await.unwrap_err();
        assert!(
            error.code() == 422 && error.to_string().contains(why),
            "{error}"
        );
    }
    // By the front door, resources stay as they are.
    let error = server.merge(&pod_name("web"), resources_of("1")).await;
    assert_eq!(error.unwrap_err().code(), 422);
}

async fn evict(server: &Inside, eviction: Value) -> Result<Value, ApiError> {
    let name = pod_name("web").with_subresource("eviction");
    let answer = server.door.create(&name, encoded(&eviction)).await;
    answer.map(|object| decoded(&object))
}

#[tokio::test]
async fn an_eviction_says_why_and_leaves_the_pod_its_grace_period() {
    let server = inside().await;
    server.create(resources::PODS, pod("web")).await.unwrap();
    server.bind(&pod_name("web"), "n1").await.unwrap();
    let status = pod_name("web").with_subresource("status");
    server
        .merge(&status, json!({ "status": { "phase": "Running" } }))
        .await
        .unwrap();
    let other = json!({ "metadata": { "name": "other" } });
    assert_eq!(evict(&server, other).await.unwrap_err().code(), 400);
    let dry = json!({ "deleteOptions": { "dryRun": ["All"] } });
    assert_eq!(evict(&server, dry).await.unwrap()["status"], "Success");
    let wrong = json!({ "deleteOptions": { "preconditions": { "uid": "x" } } });
    assert_eq!(evict(&server, wrong).await.unwrap_err().code(), 409);
    let alive = server.get(&pod_name("web")).await.unwrap();
    assert_eq!(alive["metadata"]["deletionTimestamp"], Value::Null);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": "web" } });
    assert_eq!(evict(&server, eviction).await.unwrap()["code"], 201);
    let ending = server.get(&pod_name("web")).await.unwrap();
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = ending["status"]["conditions"].as_array().unwrap();
    let target = conditions
        .iter()
        .find(|one| one["type"] == "DisruptionTarget");
    assert_eq!(target.unwrap()["reason"], "EvictionByEvictionAPI");
}
