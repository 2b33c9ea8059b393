mod volumes;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::{Value, json};
use swiftlet_client::api::{Api, DeleteParameters};
use swiftlet_client::fake::{FakeApi, error};
use swiftlet_client::{Client, Object};
use tokio_util::sync::CancellationToken;

struct Cluster {
    api: Arc<FakeApi>,
    client: Client,
    shutdown: CancellationToken,
}

impl Cluster {
    fn start() -> Self {
        let api = FakeApi::new();
        let shutdown = CancellationToken::new();
        let door: Arc<dyn Api> = api.clone();
        tokio::spawn(crate::run(Arc::clone(&door), shutdown.clone()));
        Self {
            api,
            client: Client::new(door),
            shutdown,
        }
    }

    async fn node(&self, name: &str, cpu: &str) {
        let node: Node = object(json!({
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}},
        }));
        self.client.create(&node).await.unwrap();
    }

    async fn pod(&self, name: &str, spec: Value) {
        let mut pod: Pod =
            object(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}));
        pod.status = None;
        self.client.create(&pod).await.unwrap();
    }

    async fn node_of(&self, name: &str) -> Option<String> {
        let pod: Pod = self.client.get("default", name).await.unwrap();
        pod.spec.and_then(|spec| spec.node_name)
    }

    /// Lets everything happen that happens without time passing.
    async fn settle(&self) {
        // Paused time advances only when every task waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn bindings(&self) -> usize {
        let calls = self.api.calls();
        calls
            .iter()
            .filter(|call| call.name.subresource == "binding")
            .count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn object<T: Object>(value: Value) -> T {
    let mut value = value;
    value["apiVersion"] = json!(T::API_VERSION);
    value["kind"] = json!(T::KIND);
    serde_json::from_value(value).unwrap()
}

fn wants(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_and_says_so_in_an_event() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.pod("web", wants("1")).await;
    cluster.settle().await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
    assert_eq!(cluster.bindings(), 1);
    let (events, _) = cluster.client.list::<Event>(None).await.unwrap();
    let messages: Vec<_> = events
        .into_iter()
        .filter_map(|event| event.message)
        .collect();
    assert_eq!(messages, ["Successfully assigned default/web to n1"]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(cluster.bindings(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_timer_lies_between_a_pod_and_its_binding() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    cluster.settle().await;
    let start = tokio::time::Instant::now();
    cluster.pod("web", wants("1")).await;
    while cluster.node_of("web").await.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn assumed_pods_count_before_the_api_says_so() {
    let cluster = Cluster::start();
    cluster.node("n1", "2").await;
    cluster.node("n2", "2").await;
    cluster.settle().await;
    for name in ["a", "b", "c", "d", "e"] {
        cluster.pod(name, wants("1")).await;
    }
    cluster.settle().await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        nodes.extend(cluster.node_of(name).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n1", "n2", "n2"], "the fifth pod has no room");
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_says_why_and_goes_when_a_node_appears() {
    let cluster = Cluster::start();
    cluster.node("small", "500m").await;
    cluster.pod("web", wants("1")).await;
    cluster.settle().await;
    let pod: Pod = cluster.client.get("default", "web").await.unwrap();
    let conditions = pod.status.and_then(|status| status.conditions).unwrap();
    assert_eq!(conditions[0].type_, "PodScheduled");
    assert_eq!(conditions[0].status, "False");
    assert_eq!(conditions[0].reason.as_deref(), Some("Unschedulable"));
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(conditions[0].message.as_deref(), Some(message));
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.node("large", "4").await;
    cluster.settle().await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("large"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_leaves_makes_room() {
    let cluster = Cluster::start();
    cluster.node("n1", "1").await;
    cluster.pod("first", wants("1")).await;
    cluster.settle().await;
    cluster.pod("second", wants("1")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.node_of("second").await, None);
    let first: Pod = cluster.client.get("default", "first").await.unwrap();
    let now = DeleteParameters {
        grace_period_seconds: Some(0),
        ..DeleteParameters::default()
    };
    cluster
        .client
        .delete::<Pod>(&first.key(), now)
        .await
        .unwrap();
    cluster.settle().await;
    assert_eq!(cluster.node_of("second").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_fails_is_tried_again_after_the_back_off() {
    let cluster = Cluster::start();
    let mut failures = 2;
    cluster.api.set_fault(move |call| {
        if call.name.subresource != "binding" || failures == 0 {
            return None;
        }
        failures -= 1;
        Some(error(500, "InternalError", "the store is busy"))
    });
    cluster.node("n1", "4").await;
    cluster.pod("web", wants("1")).await;
    cluster.settle().await;
    assert_eq!(
        (cluster.bindings(), cluster.node_of("web").await),
        (1, None)
    );
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(cluster.node_of("web").await.as_deref(), Some("n1"));
    assert_eq!(cluster.bindings(), 3);
}

#[tokio::test(start_paused = true)]
async fn only_pods_that_are_ours_are_bound() {
    let cluster = Cluster::start();
    cluster.node("n1", "4").await;
    let containers = json!([{"name": "c"}]);
    cluster
        .pod(
            "other",
            json!({"containers": containers, "schedulerName": "mine"}),
        )
        .await;
    let gates = json!([{"name": "wait"}]);
    cluster
        .pod(
            "gated",
            json!({"containers": containers, "schedulingGates": gates}),
        )
        .await;
    cluster
        .pod(
            "placed",
            json!({"containers": containers, "nodeName": "elsewhere"}),
        )
        .await;
    cluster
        .pod(
            "ours",
            json!({"containers": containers, "schedulerName": "default-scheduler"}),
        )
        .await;
    cluster.settle().await;
    assert_eq!(cluster.bindings(), 1);
    assert_eq!(cluster.node_of("ours").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_every_bound_pod_counts_before_the_first_decision() {
    let api = FakeApi::new();
    let door: Arc<dyn Api> = api.clone();
    let client = Client::new(Arc::clone(&door));
    let shutdown = CancellationToken::new();
    let cluster = Cluster {
        api,
        client,
        shutdown: shutdown.clone(),
    };
    cluster.node("n1", "3").await;
    // More pods than the queue of changes holds; the unbound one is listed first.
    cluster.pod("a", wants("1")).await;
    for index in 0..2000 {
        let containers = json!([{"name": "c"}]);
        let elsewhere = json!({"containers": containers, "nodeName": "n2"});
        cluster.pod(&format!("b{index}"), elsewhere).await;
    }
    for index in 0..3 {
        let mut spec = wants("1");
        spec["nodeName"] = json!("n1");
        cluster.pod(&format!("z{index}"), spec).await;
    }
    tokio::spawn(crate::run(door, shutdown));
    cluster.settle().await;
    assert_eq!((cluster.node_of("a").await, cluster.bindings()), (None, 0));
}
