use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::*;

fn uses(claim: &str) -> Value {
    json!({
        "containers": [{"name": "c"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
    })
}

impl Cluster {
    async fn volume_on(&self, name: &str, node: &str) {
        let rule = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let volume: PersistentVolume = object(json!({
            "metadata": {"name": name},
            "spec": {"nodeAffinity": {"required": {
                "nodeSelectorTerms": [{"matchFields": [rule]}],
            }}},
        }));
        self.client.create(&volume).await.unwrap();
    }

    async fn claim(&self, name: &str, class: &str, volume: Option<&str>) {
        let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
        let claim: PersistentVolumeClaim = object(json!({
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": volume.map(|_| bound),
            },
            "spec": {"storageClassName": class, "volumeName": volume},
        }));
        self.client.create(&claim).await.unwrap();
    }

    async fn why_unschedulable(&self, name: &str) -> Option<String> {
        let pod: Pod = self.client.get("default", name).await.unwrap();
        pod.status?.conditions?.pop()?.message
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_the_volume_behind_its_claim_is() {
    let cluster = Cluster::start();
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "4").await;
    }
    cluster.volume_on("v3", "n3").await;
    cluster.claim("data", "local", Some("v3")).await;
    cluster.settle().await;
    for name in ["a", "b"] {
        cluster.pod(name, uses("data")).await;
    }
    cluster.settle().await;
    for name in ["a", "b"] {
        assert_eq!(cluster.node_of(name).await.as_deref(), Some("n3"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volume_is_on_no_node_says_so() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.volume_on("v", "gone").await;
    cluster.claim("data", "local", Some("v")).await;
    cluster.settle().await;
    cluster.pod("web", uses("data")).await;
    cluster.settle().await;
    let message = "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node \
                   affinity.";
    assert_eq!(
        cluster.why_unschedulable("web").await.as_deref(),
        Some(message)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_claim_and_for_the_claims_volume() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.node("n2", "4").await;
    cluster.pod("web", uses("data")).await;
    cluster.settle().await;
    let message = "0/2 nodes are available: persistentvolumeclaim \"data\" not found.";
    assert_eq!(
        cluster.why_unschedulable("web").await.as_deref(),
        Some(message)
    );
    cluster.claim("data", "local", None).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let message = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert_eq!(
        cluster.why_unschedulable("web").await.as_deref(),
        Some(message)
    );
    assert_eq!(cluster.node_of("web").await, None);
    cluster.volume_on("v2", "n2").await;
    let mut claim: PersistentVolumeClaim = cluster.client.get("default", "data").await.unwrap();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert("pv.kubernetes.io/bind-completed".into(), "yes".into());
    claim.spec.get_or_insert_default().volume_name = Some("v2".into());
    cluster.client.update(&claim).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n2"));
}

impl Cluster {
    async fn class_that_waits(&self, name: &str, provisioner: &str) {
        let class: StorageClass = object(json!({
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
        self.client.create(&class).await.unwrap();
    }

    /// A volume of the class `late` on one node.
    async fn late_volume_on(&self, name: &str, node: &str) {
        let rule = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let volume: PersistentVolume = object(json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": "late", "nodeAffinity": {"required": {
                "nodeSelectorTerms": [{"matchFields": [rule]}],
            }}},
        }));
        self.client.create(&volume).await.unwrap();
    }

    /// The claim for which a volume is.
    async fn holder(&self, volume: &str) -> Option<String> {
        let volume: PersistentVolume = self.client.get("", volume).await.unwrap();
        volume.spec?.claim_ref?.name
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_claim_waits_for_it_goes_where_a_volume_is_free_and_has_it_then() {
    let cluster = Cluster::start();
    cluster
        .class_that_waits("late", "kubernetes.io/no-provisioner")
        .await;
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "4").await;
    }
    cluster.late_volume_on("v2", "n2").await;
    cluster.late_volume_on("v3", "n3").await;
    for name in ["a", "b", "c"] {
        cluster.claim(name, "late", None).await;
    }
    cluster.settle().await;
    // At once: the second one must not count on the volume of the first.
    for name in ["a", "b", "c"] {
        cluster.pod(name, uses(name)).await;
    }
    cluster.settle().await;
    let mut placed = Vec::new();
    for (volume, node) in [("v2", "n2"), ("v3", "n3")] {
        let claim = cluster.holder(volume).await.expect(volume);
        assert_eq!(cluster.node_of(&claim).await.as_deref(), Some(node));
        placed.push(claim);
    }
    assert_ne!(placed[0], placed[1]);
    let left = ["a", "b", "c"]
        .into_iter()
        .find(|name| !placed.contains(&(*name).to_owned()));
    let message = "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to \
                   bind.";
    assert_eq!(
        cluster.why_unschedulable(left.unwrap()).await.as_deref(),
        Some(message)
    );
    cluster.late_volume_on("v1", "n1").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.node_of(left.unwrap()).await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_share_a_claim_go_to_the_one_volume_of_it() {
    let cluster = Cluster::start();
    cluster
        .class_that_waits("late", "kubernetes.io/no-provisioner")
        .await;
    cluster.node("n1", "4").await;
    cluster.node("n2", "4").await;
    cluster.late_volume_on("v1", "n1").await;
    cluster.late_volume_on("v2", "n2").await;
    cluster.claim("data", "late", None).await;
    cluster.settle().await;
    for name in ["a", "b", "c"] {
        cluster.pod(name, uses("data")).await;
    }
    cluster.settle().await;
    let node = cluster.node_of("a").await;
    assert!(node.is_some());
    assert_eq!(cluster.node_of("b").await, node);
    assert_eq!(cluster.node_of("c").await, node);
    let holders = [cluster.holder("v1").await, cluster.holder("v2").await];
    assert_eq!(holders.iter().flatten().count(), 1, "{holders:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_somebody_makes_when_it_is_needed_does_not_hold_its_pod() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.class_that_waits("made", "example.org/disk").await;
    cluster.claim("data", "made", None).await;
    cluster.settle().await;
    cluster.pod("web", uses("data")).await;
    cluster.settle().await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_a_volume_elsewhere_is_not_given_a_new_one() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.class_that_waits("late", "example.org/disk").await;
    cluster.claim("data", "late", None).await;
    let claim: PersistentVolumeClaim = cluster.client.get("default", "data").await.unwrap();
    cluster.late_volume_on("v2", "n2").await;
    let mut volume: PersistentVolume = cluster.client.get("", "v2").await.unwrap();
    let holder = json!({"namespace": "default", "name": "data", "uid": claim.metadata.uid});
    volume.spec.get_or_insert_default().claim_ref = serde_json::from_value(holder).unwrap();
    cluster.client.update(&volume).await.unwrap();
    cluster.settle().await;
    cluster.pod("web", uses("data")).await;
    cluster.settle().await;
    assert_eq!(cluster.node_of("web").await, None);
    cluster.node("n2", "4").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n2"));
}
