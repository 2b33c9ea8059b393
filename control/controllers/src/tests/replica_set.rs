use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use swiftlet_client::Object;
use swiftlet_client::fake::error;

use super::cluster::{Cluster, sleep, template};

fn set(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("v1"),
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_set_has_as_many_pods_as_it_wants_and_says_so() {
    let cluster = Cluster::start();
    cluster.create::<ReplicaSet>(set(3)).await;
    sleep(5).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 3);
    let owner = &pods[0].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("ReplicaSet", "web")
    );
    assert_eq!(
        (owner.controller, owner.block_owner_deletion),
        (Some(true), Some(true))
    );
    assert!(pods[0].name().starts_with("web-"));
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (3, Some(3)));
    assert_eq!(
        (status.available_replicas, status.fully_labeled_replicas),
        (Some(3), Some(3))
    );
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(cluster.events("SuccessfulCreate").await, 3);

    cluster
        .patch::<ReplicaSet>("web", json!({"spec": {"replicas": 1}}))
        .await;
    sleep(5).await;
    assert_eq!(cluster.list::<Pod>().await.len(), 1);
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!((status.replicas, status.observed_generation), (1, Some(2)));
    cluster
        .patch::<ReplicaSet>("web", json!({"spec": {"replicas": 0}}))
        .await;
    sleep(5).await;
    assert_eq!(cluster.list::<Pod>().await.len(), 0);
    assert_eq!(
        cluster.count("create", "pods"),
        3,
        "no pod was created twice"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_is_replaced() {
    let cluster = Cluster::start();
    cluster.create::<ReplicaSet>(set(2)).await;
    sleep(5).await;
    let pods = cluster.pods().await;
    cluster.delete(&pods[0], None).await;
    sleep(5).await;
    let after = cluster.pods().await;
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|pod| pod.uid() != pods[0].uid()));
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_pods_are_refused_asks_with_one_request_at_a_time() {
    let cluster = Cluster::start();
    cluster.api.set_fault(|call| {
        let refused = call.verb == "create" && call.name.resource.plural == "pods";
        refused.then(|| error(403, "Forbidden", "exceeded quota"))
    });
    cluster.create::<ReplicaSet>(set(100)).await;
    tokio::time::sleep(std::time::Duration::from_millis(4)).await;
    // The first pass, and the one that its own condition caused.
    assert_eq!(cluster.count("create", "pods"), 2);
    let status = cluster.set("web").await.status.unwrap();
    let condition = &status.conditions.unwrap()[0];
    assert_eq!(condition.type_, "ReplicaFailure");
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
    assert_eq!(condition.message.as_deref(), Some("exceeded quota"));
    // 5 ms, 10 ms, … : about 17 attempts in ten minutes.
    sleep(600).await;
    let attempts = cluster.count("create", "pods");
    assert!((10..25).contains(&attempts), "{attempts}");
    cluster.api.set_fault(|_| None);
    sleep(1000).await;
    assert_eq!(cluster.pods().await.len(), 100);
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!(
        (status.conditions, status.available_replicas),
        (None, Some(100))
    );
}

#[tokio::test(start_paused = true)]
async fn more_than_a_burst_is_created_in_several_passes() {
    let cluster = Cluster::start();
    cluster.create::<ReplicaSet>(set(700)).await;
    sleep(10).await;
    assert_eq!(cluster.pods().await.len(), 700);
    assert_eq!(cluster.count("create", "pods"), 700);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_matches_is_adopted_and_a_pod_that_no_longer_does_is_released() {
    let cluster = Cluster::start();
    let orphan = json!({
        "metadata": {"name": "orphan", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}]},
    });
    cluster.create::<Pod>(orphan).await;
    cluster.create::<ReplicaSet>(set(2)).await;
    sleep(5).await;
    assert_eq!(cluster.pods().await.len(), 2, "the orphan counts");
    let set = cluster.set("web").await;
    let orphan: Pod = cluster.get("orphan").await;
    assert_eq!(orphan.metadata.owner_references.unwrap()[0].uid, set.uid());

    cluster
        .patch::<Pod>("orphan", json!({"metadata": {"labels": {"app": "debug"}}}))
        .await;
    sleep(5).await;
    let released: Pod = cluster.get("orphan").await;
    assert!(
        released
            .metadata
            .owner_references
            .unwrap_or_default()
            .is_empty()
    );
    assert_eq!(cluster.pods().await.len(), 3, "another pod took its place");
}

#[tokio::test(start_paused = true)]
async fn availability_waits_for_min_ready_seconds() {
    let cluster = Cluster::start();
    let mut set = set(1);
    set["spec"]["minReadySeconds"] = json!(30);
    cluster.create::<ReplicaSet>(set).await;
    sleep(10).await;
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!(
        (status.ready_replicas, status.available_replicas),
        (Some(1), None)
    );
    sleep(30).await;
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!(status.available_replicas, Some(1));
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_tried_again_until_the_status_is_written() {
    let cluster = Cluster::start();
    let mut conflicts = 5;
    cluster.api.set_fault(move |call| {
        let status = call.name.subresource == "status" && call.verb == "update";
        if !status || conflicts == 0 {
            return None;
        }
        conflicts -= 1;
        Some(error(409, "Conflict", "the object has been modified"))
    });
    cluster.create::<ReplicaSet>(set(2)).await;
    sleep(5).await;
    let status = cluster.set("web").await.status.unwrap();
    assert_eq!(status.available_replicas, Some(2));
    assert_eq!(cluster.count("create", "pods"), 2);
}
