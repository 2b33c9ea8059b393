use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use swiftlet_client::Object;

use super::cluster::{Cluster, sleep};

async fn volume(cluster: &Cluster, name: &str) -> PersistentVolume {
    cluster
        .create(json!({
            "metadata": { "name": name, "finalizers": ["kubernetes.io/pv-protection"] },
            "spec": {
                "capacity": { "storage": "5Gi" },
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "manual",
                "hostPath": { "path": "/data" },
            },
        }))
        .await
}

async fn claim(cluster: &Cluster, name: &str) -> PersistentVolumeClaim {
    cluster
        .create(json!({
            "metadata": {
                "name": name,
                "namespace": "default",
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "manual",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }))
        .await
}

async fn found<T: Object>(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    let object: T = cluster.client.get(namespace, name).await.unwrap();
    serde_json::to_value(object).unwrap()
}

async fn phase_of_claim(cluster: &Cluster, name: &str) -> Value {
    found::<PersistentVolumeClaim>(cluster, "default", name).await["status"]["phase"].clone()
}

async fn phase_of_volume(cluster: &Cluster, name: &str) -> Value {
    found::<PersistentVolume>(cluster, "", name).await["status"]["phase"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_a_volume_and_both_are_bound() {
    let cluster = Cluster::start();
    let made = claim(&cluster, "c").await;
    sleep(1).await;
    assert_eq!(cluster.events("ProvisioningFailed").await, 1);
    volume(&cluster, "v").await;
    sleep(1).await;
    let bound = found::<PersistentVolumeClaim>(&cluster, "default", "c").await;
    assert_eq!(bound["spec"]["volumeName"], "v");
    assert_eq!(bound["status"]["phase"], "Bound");
    assert_eq!(bound["status"]["capacity"]["storage"], "5Gi");
    let held = found::<PersistentVolume>(&cluster, "", "v").await;
    assert_eq!(held["status"]["phase"], "Bound");
    assert_eq!(held["spec"]["claimRef"]["uid"], made.uid());
    let other = claim(&cluster, "other").await;
    sleep(1).await;
    assert_eq!(
        found::<PersistentVolumeClaim>(&cluster, "default", "other").await["spec"]["volumeName"],
        Value::Null
    );
    assert_ne!(other.uid(), made.uid());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_names_a_volume_gets_it_only_if_it_fits() {
    let cluster = Cluster::start();
    let wants = |name: &str, storage: &str| {
        json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "manual",
                "volumeName": "v",
                "resources": { "requests": { "storage": storage } },
            },
        })
    };
    let _: PersistentVolumeClaim = cluster.create(wants("large", "9Gi")).await;
    volume(&cluster, "v").await;
    sleep(5).await;
    assert_eq!(cluster.events("VolumeMismatch").await, 1);
    assert_eq!(phase_of_volume(&cluster, "v").await, "Available");
    assert_ne!(phase_of_claim(&cluster, "large").await, "Bound");
    let _: PersistentVolumeClaim = cluster.create(wants("small", "1Gi")).await;
    sleep(5).await;
    assert_eq!(phase_of_claim(&cluster, "small").await, "Bound");
    assert_eq!(phase_of_volume(&cluster, "v").await, "Bound");
}

#[tokio::test(start_paused = true)]
async fn a_claim_goes_after_its_pod_and_its_volume_is_released() {
    let cluster = Cluster::start();
    volume(&cluster, "v").await;
    let made = claim(&cluster, "c").await;
    let pod: Pod = cluster
        .create(json!({
            "metadata": { "name": "p", "namespace": "default" },
            "spec": {
                "nodeName": "n1",
                "containers": [{ "name": "c" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
            },
        }))
        .await;
    sleep(5).await;
    assert_eq!(phase_of_claim(&cluster, "c").await, "Bound");
    cluster.delete(&made, None).await;
    sleep(5).await;
    let waiting: PersistentVolumeClaim = cluster.get("c").await;
    assert!(waiting.is_terminating(), "a pod uses it");
    cluster.delete(&pod, None).await;
    sleep(5).await;
    assert!(cluster.list::<PersistentVolumeClaim>().await.is_empty());
    assert_eq!(phase_of_volume(&cluster, "v").await, "Released");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_class_that_waits_is_bound_when_a_pod_needs_it() {
    let cluster = Cluster::start();
    let class: StorageClass = cluster
        .create(json!({
            "metadata": { "name": "manual" },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .await;
    assert_eq!(class.name(), "manual");
    volume(&cluster, "v").await;
    claim(&cluster, "c").await;
    sleep(5).await;
    assert_eq!(phase_of_volume(&cluster, "v").await, "Available");
    assert_eq!(cluster.events("WaitForFirstConsumer").await, 1);
    let _: Pod = cluster
        .create(json!({
            "metadata": { "name": "p", "namespace": "default" },
            "spec": {
                "nodeName": "n1",
                "containers": [{ "name": "c" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }],
            },
        }))
        .await;
    sleep(5).await;
    assert_eq!(phase_of_claim(&cluster, "c").await, "Bound");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_the_scheduler_reserved_is_bound_though_a_smaller_one_would_do() {
    let cluster = Cluster::start();
    let class: StorageClass = cluster
        .create(json!({
            "metadata": { "name": "manual" },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .await;
    assert_eq!(class.name(), "manual");
    volume(&cluster, "a").await;
    let mut chosen = volume(&cluster, "b").await;
    let made = claim(&cluster, "c").await;
    sleep(5).await;
    // No pod is on a node yet: the scheduler writes this before it binds the pod.
    let reference = json!({ "namespace": "default", "name": "c", "uid": made.uid() });
    chosen = cluster.client.get("", chosen.name()).await.unwrap();
    let spec = chosen.spec.get_or_insert_default();
    spec.claim_ref = serde_json::from_value(reference).unwrap();
    cluster.client.update(&chosen).await.unwrap();
    sleep(5).await;
    let bound = found::<PersistentVolumeClaim>(&cluster, "default", "c").await;
    assert_eq!(bound["spec"]["volumeName"], "b");
    assert_eq!(bound["status"]["phase"], "Bound");
    assert_eq!(phase_of_volume(&cluster, "a").await, "Available");
}
