use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use swiftlet_client::api::PatchKind;
use swiftlet_client::{Object, ObjectKey};

use super::cluster::{Cluster, NODE, sleep};

async fn node(cluster: &Cluster) -> Node {
    cluster.client.get("", NODE).await.unwrap()
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    taints
        .iter()
        .map(|taint| format!("{}:{}", taint.key, taint.effect))
        .collect()
}

fn ready(node: &Node) -> String {
    let conditions = node.status.clone().unwrap().conditions.unwrap();
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap()
        .status
        .clone()
}

async fn start() -> Cluster {
    let cluster = Cluster::start();
    cluster
        .create::<Node>(json!({
            "metadata": {"name": NODE},
            "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .await;
    cluster
        .create::<Lease>(json!({
            "metadata": {"name": NODE, "namespace": "kube-node-lease"},
            "spec": {"renewTime": MicroTime(cluster.clock.now())},
        }))
        .await;
    cluster
}

async fn renew(cluster: &Cluster) {
    let key = ObjectKey::new("kube-node-lease", NODE);
    let patch = json!({"spec": {"renewTime": MicroTime(cluster.clock.now())}});
    cluster
        .client
        .patch::<Lease>(&key, PatchKind::Merge, &patch)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_renews_its_lease_stays_ready() {
    let cluster = start().await;
    for _ in 0..20 {
        sleep(10).await;
        renew(&cluster).await;
    }
    assert_eq!(ready(&node(&cluster).await), "True");
    assert_eq!(taints(&node(&cluster).await), ["mine:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_unknown_tainted_and_loses_its_pods() {
    let cluster = start().await;
    let pod = |name: &str, tolerations: serde_json::Value| {
        json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c"}], "tolerations": tolerations},
        })
    };
    cluster.create::<Pod>(pod("plain", json!([]))).await;
    cluster
        .create::<Pod>(pod("patient", json!([{"operator": "Exists"}])))
        .await;
    let key = "node.kubernetes.io/unreachable";
    let hasty = json!([{"key": key, "operator": "Exists", "tolerationSeconds": 5}]);
    cluster.create::<Pod>(pod("hasty", hasty)).await;
    sleep(39).await;
    assert_eq!(ready(&node(&cluster).await), "True");
    sleep(2).await;
    let silent = node(&cluster).await;
    assert_eq!(ready(&silent), "Unknown");
    let unreachable = [
        "mine:NoSchedule".to_owned(),
        format!("{key}:NoSchedule"),
        format!("{key}:NoExecute"),
    ];
    assert_eq!(taints(&silent), unreachable);
    assert_eq!(cluster.pods().await.len(), 3);
    sleep(10).await;
    let names = |pods: Vec<Pod>| {
        pods.iter()
            .map(|pod| pod.name().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(cluster.pods().await), ["patient", "plain"]);
    sleep(300).await;
    assert_eq!(names(cluster.pods().await), ["patient"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_loses_its_taints() {
    let cluster = start().await;
    sleep(60).await;
    assert_eq!(ready(&node(&cluster).await), "Unknown");
    renew(&cluster).await;
    let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let key = ObjectKey::new("", NODE);
    cluster
        .client
        .patch_status::<Node>(&key, PatchKind::Strategic, &conditions)
        .await
        .unwrap();
    sleep(1).await;
    assert_eq!(taints(&node(&cluster).await), ["mine:NoSchedule"]);
    assert_eq!(ready(&node(&cluster).await), "True");
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_is_tainted_while_it_is_cordoned() {
    let cluster = start().await;
    let key = ObjectKey::new("", NODE);
    for (cordoned, count) in [(true, 2), (false, 1)] {
        let patch = json!({"spec": {"unschedulable": cordoned}});
        cluster
            .client
            .patch::<Node>(&key, PatchKind::Merge, &patch)
            .await
            .unwrap();
        sleep(1).await;
        assert_eq!(taints(&node(&cluster).await).len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_go_unless_the_node_comes_back() {
    let cluster = start().await;
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "c"}]},
    });
    cluster.create::<Pod>(pod).await;
    sleep(10).await;
    let gone = node(&cluster).await;
    cluster.delete(&gone, None).await;
    sleep(30).await;
    assert_eq!(cluster.pods().await.len(), 1);
    cluster
        .create::<Node>(json!({"metadata": {"name": NODE}}))
        .await;
    sleep(30).await;
    assert_eq!(cluster.pods().await.len(), 1);
    cluster.delete(&node(&cluster).await, None).await;
    sleep(39).await;
    assert_eq!(cluster.pods().await.len(), 1);
    sleep(2).await;
    assert!(cluster.list::<Pod>().await.is_empty());
}
