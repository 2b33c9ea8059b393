use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use swiftlet_client::Object;
use swiftlet_client::fake::error;

use super::cluster::{Cluster, sleep, template};

async fn deployed() -> (Cluster, Deployment) {
    let cluster = Cluster::start();
    let deployment = cluster
        .create::<Deployment>(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "web"}},
                "template": template("v1"),
            },
        }))
        .await;
    sleep(10).await;
    assert_eq!(cluster.pods().await.len(), 3);
    (cluster, deployment)
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_goes_with_its_owner() {
    let (cluster, deployment) = deployed().await;
    cluster.delete(&deployment, None).await;
    sleep(10).await;
    assert!(cluster.list::<Deployment>().await.is_empty());
    assert!(cluster.list::<ReplicaSet>().await.is_empty());
    assert!(cluster.list::<Pod>().await.is_empty());
    assert_eq!(cluster.count("create", "pods"), 3, "no pod came back");
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_ends_after_its_dependents() {
    let (cluster, deployment) = deployed().await;
    cluster.delete(&deployment, Some("Foreground")).await;
    tokio::time::sleep(super::cluster::STOP_TIME / 2).await;
    assert_eq!(cluster.list::<Deployment>().await.len(), 1);
    assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1);
    assert!(
        cluster
            .list::<Pod>()
            .await
            .iter()
            .all(Object::is_terminating)
    );
    sleep(10).await;
    assert!(cluster.list::<Pod>().await.is_empty());
    assert!(cluster.list::<ReplicaSet>().await.is_empty());
    assert!(cluster.list::<Deployment>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_are_adopted_by_a_successor() {
    let (cluster, deployment) = deployed().await;
    cluster.delete(&deployment, Some("Orphan")).await;
    sleep(10).await;
    assert!(cluster.list::<Deployment>().await.is_empty());
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 1);
    assert!(
        sets[0]
            .metadata
            .owner_references
            .clone()
            .unwrap_or_default()
            .is_empty()
    );
    assert_eq!(cluster.pods().await.len(), 3);
    let mut successor = deployment.clone();
    successor.metadata =
        serde_json::from_value(json!({"name": "web", "namespace": "default"})).unwrap();
    successor.status = None;
    let successor = cluster.client.create(&successor).await.unwrap();
    sleep(10).await;
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 1);
    assert_eq!(
        sets[0].metadata.owner_references.as_ref().unwrap()[0].uid,
        successor.uid()
    );
    assert_eq!(cluster.count("create", "pods"), 3);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_one_living_owner_stays_and_loses_the_others() {
    let (cluster, _) = deployed().await;
    let owner = |name: &str, uid: &str| {
        let api = "apps/v1";
        json!({"apiVersion": api, "kind": "ReplicaSet", "name": name, "uid": uid})
    };
    let set = cluster.list::<ReplicaSet>().await.remove(0);
    let pod = |name: &str, owners: serde_json::Value| {
        json!({
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
            "spec": {"containers": [{"name": "c"}]},
        })
    };
    let living = owner(set.name(), set.uid());
    cluster
        .create::<Pod>(pod("kept", json!([living, owner("gone", "x")])))
        .await;
    cluster
        .create::<Pod>(pod("doomed", json!([owner("gone", "x")])))
        .await;
    // The same name as a living owner, but another uid.
    cluster
        .create::<Pod>(pod("stale", json!([owner(set.name(), "y")])))
        .await;
    sleep(10).await;
    let names: Vec<_> = cluster
        .list::<Pod>()
        .await
        .iter()
        .map(|pod| pod.name().to_owned())
        .collect();
    assert!(names.contains(&"kept".to_owned()), "{names:?}");
    assert!(!names.contains(&"doomed".to_owned()), "{names:?}");
    assert!(!names.contains(&"stale".to_owned()), "{names:?}");
    let kept: Pod = cluster.get("kept").await;
    assert_eq!(kept.metadata.owner_references.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_changed_since_it_was_judged_is_judged_again() {
    let (cluster, deployment) = deployed().await;
    let mut refusals = 2;
    cluster.api.set_fault(move |call| {
        let is_set = call.verb == "delete" && call.name.resource.plural == "replicasets";
        if !is_set || refusals == 0 {
            return None;
        }
        refusals -= 1;
        Some(error(409, "Conflict", "the object has been modified"))
    });
    cluster.delete(&deployment, None).await;
    sleep(10).await;
    assert_eq!(cluster.count("delete", "replicasets"), 3);
    assert!(cluster.list::<ReplicaSet>().await.is_empty());
    assert!(cluster.list::<Pod>().await.is_empty());
}
