//! A cluster in memory: controllers, and a simulated node that runs every pod.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use swiftlet_client::api::{Api, DeleteParameters, PatchKind};
use swiftlet_client::fake::FakeApi;
use swiftlet_client::informer::Informer;
use swiftlet_client::reflector::Change;
use swiftlet_client::{Client, Object};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::manager::{Options, run};

/// How long a simulated pod takes to become ready, and to end.
pub(super) const START_TIME: Duration = Duration::from_secs(2);
pub(super) const STOP_TIME: Duration = Duration::from_secs(1);
pub(super) const NODE: &str = "n1";

pub(super) struct Cluster {
    pub(super) api: Arc<FakeApi>,
    pub(super) client: Client,
    pub(super) clock: Clock,
    shutdown: CancellationToken,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let api = FakeApi::new();
        let shutdown = CancellationToken::new();
        let door: Arc<dyn Api> = api.clone();
        let clock = virtual_clock();
        let options = Options {
            clock: clock.clone(),
            root_ca_pem: "certificate".to_owned(),
        };
        let controllers = run(Arc::clone(&door), options, shutdown.clone());
        tokio::spawn(controllers);
        tokio::spawn(run_pods(
            Client::new(Arc::clone(&door)),
            clock.clone(),
            shutdown.clone(),
        ));
        Self {
            api,
            client: Client::new(door),
            clock,
            shutdown,
        }
    }

    pub(super) async fn create<T: Object>(&self, value: Value) -> T {
        self.client.create(&object::<T>(value)).await.unwrap()
    }

    pub(super) async fn get<T: Object>(&self, name: &str) -> T {
        self.client.get("default", name).await.unwrap()
    }

    pub(super) async fn list<T: Object>(&self) -> Vec<T> {
        self.client.list(Some("default")).await.unwrap().0
    }

    pub(super) async fn patch<T: Object>(&self, name: &str, patch: Value) -> T {
        let key = swiftlet_client::ObjectKey::new("default", name);
        self.client
            .patch(&key, PatchKind::Merge, &patch)
            .await
            .unwrap()
    }

    pub(super) async fn delete<T: Object>(&self, object: &T, policy: Option<&str>) {
        let parameters = DeleteParameters {
            propagation_policy: policy.map(str::to_owned),
            ..DeleteParameters::default()
        };
        self.client
            .delete::<T>(&object.key(), parameters)
            .await
            .unwrap();
    }

    /// The pods that are not being deleted.
    pub(super) async fn pods(&self) -> Vec<Pod> {
        let pods = self.list::<Pod>().await;
        pods.into_iter()
            .filter(|pod| !pod.is_terminating())
            .collect()
    }

    pub(super) async fn set(&self, name: &str) -> ReplicaSet {
        self.get(name).await
    }

    pub(super) async fn deployment(&self, name: &str) -> Deployment {
        self.get(name).await
    }

    /// How many events have this reason, repetitions included.
    pub(super) async fn events(&self, reason: &str) -> i32 {
        let events = self.list::<Event>().await.into_iter();
        let matching = events.filter(|event| event.reason.as_deref() == Some(reason));
        matching.map(|event| event.count.unwrap_or(1)).sum()
    }

    /// Calls of a verb on a plural (and subresource `""`).
    pub(super) fn count(&self, verb: &str, plural: &str) -> usize {
        let calls = self.api.calls().into_iter();
        calls
            .filter(|call| call.verb == verb && call.name.resource.plural == plural)
            .filter(|call| call.name.subresource.is_empty())
            .count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A wall clock that follows the runtime's paused time.
pub(super) fn virtual_clock() -> Clock {
    let (start, base) = (Instant::now(), Timestamp::now());
    Clock::new(move || base + start.elapsed())
}

pub(super) async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub(super) fn object<T: Object>(mut value: Value) -> T {
    value["apiVersion"] = json!(T::API_VERSION);
    value["kind"] = json!(T::KIND);
    serde_json::from_value(value).unwrap()
}

pub(super) fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

/// Runs every pod: binds it, makes it ready after a while, and ends it when it is deleted.
async fn run_pods(client: Client, clock: Clock, shutdown: CancellationToken) {
    let mut pods = Informer::<Pod>::new(Arc::clone(client.api()), Vec::new());
    let mut changes = pods.subscribe();
    pods.spawn(shutdown.clone());
    while let Some(Some(change)) = shutdown.run_until_cancelled(changes.recv()).await {
        let (client, clock) = (client.clone(), clock.clone());
        match change {
            Change::Added(pod) => {
                tokio::spawn(async move { start_pod(&client, &clock, &pod).await });
            }
            Change::Updated { old, new } if new.is_terminating() && !old.is_terminating() => {
                tokio::spawn(async move {
                    tokio::time::sleep(STOP_TIME).await;
                    let now = DeleteParameters {
                        grace_period_seconds: Some(0),
                        uid: new.metadata.uid.clone(),
                        ..DeleteParameters::default()
                    };
                    let _ = client.delete::<Pod>(&new.key(), now).await;
                });
            }
            Change::Updated { .. } | Change::Deleted(_) => (),
        }
    }
}

async fn start_pod(client: &Client, clock: &Clock, pod: &Pod) {
    let _ = client.bind(pod, NODE).await;
    tokio::time::sleep(START_TIME).await;
    // An image that never becomes ready.
    let image = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.containers[0].image.clone());
    let ready = if image.as_deref() == Some("broken") {
        "False"
    } else {
        "True"
    };
    let condition =
        json!({"type": "Ready", "status": ready, "lastTransitionTime": Time(clock.now())});
    let patch = json!({"status": {"phase": "Running", "conditions": [condition]}});
    let _ = client
        .patch_status::<Pod>(&pod.key(), PatchKind::Strategic, &patch)
        .await;
}
