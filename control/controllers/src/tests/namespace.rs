use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, ServiceAccount};
use serde_json::json;
use swiftlet_client::Object;
use swiftlet_client::api::DeleteParameters;

use super::cluster::{Cluster, sleep};

#[tokio::test(start_paused = true)]
async fn every_namespace_has_a_default_service_account_and_gets_it_back() {
    let cluster = Cluster::start();
    cluster
        .create::<Namespace>(json!({"metadata": {"name": "default"}}))
        .await;
    sleep(1).await;
    let account: ServiceAccount = cluster.get("default").await;
    cluster.delete(&account, None).await;
    sleep(1).await;
    let again: ServiceAccount = cluster.get("default").await;
    assert_ne!(account.uid(), again.uid());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_is_emptied_first() {
    let cluster = Cluster::start();
    let namespace = cluster
        .create::<Namespace>(json!({"metadata": {"name": "default"}}))
        .await;
    let named = json!({"metadata": {"name": "x", "namespace": "default"}});
    cluster.create::<ConfigMap>(named).await;
    cluster
        .create::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c"}]},
        }))
        .await;
    sleep(5).await;
    cluster
        .client
        .delete::<Namespace>(&namespace.key(), DeleteParameters::default())
        .await
        .unwrap();
    tokio::time::sleep(super::cluster::STOP_TIME / 2).await;
    let terminating: Namespace = cluster.client.get("", "default").await.unwrap();
    assert!(terminating.is_terminating(), "it waits for its pod");
    // The pod's end is an event: nothing waits for a timer.
    sleep(1).await;
    let (namespaces, _) = cluster.client.list::<Namespace>(None).await.unwrap();
    assert!(namespaces.is_empty());
    assert!(cluster.list::<ConfigMap>().await.is_empty());
    assert!(
        cluster.list::<ServiceAccount>().await.is_empty(),
        "none came back"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_is_gone_an_hour_after_it_was_seen_for_the_last_time() {
    let cluster = Cluster::start();
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "lastTimestamp": cluster.clock.now(),
    });
    cluster.create::<Event>(event).await;
    sleep(59 * 60).await;
    assert_eq!(cluster.list::<Event>().await.len(), 1);
    sleep(10 * 60).await;
    assert!(cluster.list::<Event>().await.is_empty());
}
