use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use swiftlet_client::Object;
use swiftlet_client::informer::Informer;
use swiftlet_client::reflector::Store;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, sleep, template};
use crate::pod_state::{has_ended, is_ready};

fn deployment(replicas: i32, strategy: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("v1"),
            "strategy": strategy,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 1,
        },
    })
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    })
}

fn images(pods: &[Pod]) -> Vec<String> {
    let mut images: Vec<_> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.containers[0].image.clone())
        .collect();
    images.sort();
    images
}

fn condition(deployment: &Deployment, kind: &str) -> (String, String) {
    let conditions = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let found = conditions
        .unwrap()
        .iter()
        .find(|condition| condition.type_ == kind)
        .unwrap();
    (found.status.clone(), found.reason.clone().unwrap())
}

/// What `kubectl rollout status` asks.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap();
    let updated = status.updated_replicas.unwrap_or(0);
    status.observed_generation >= deployment.metadata.generation
        && updated >= wanted
        && status.replicas.unwrap_or(0) <= updated
        && status.available_replicas.unwrap_or(0) >= updated
}

async fn update(cluster: &Cluster, image: &str) {
    cluster
        .patch::<Deployment>("web", json!({"spec": {"template": template(image)}}))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_created_scaled_and_complete() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(3, rolling(json!("25%"), json!("25%"))))
        .await;
    sleep(5).await;
    let web = cluster.deployment("web").await;
    assert!(is_rolled_out(&web));
    assert_eq!(
        condition(&web, "Available"),
        ("True".into(), "MinimumReplicasAvailable".into())
    );
    assert_eq!(
        condition(&web, "Progressing"),
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    let revision = &web.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"];
    assert_eq!(revision, "1");
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 1);
    let hash = sets[0].name().strip_prefix("web-").unwrap().to_owned();
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 3);
    assert_eq!(
        pods[0].metadata.labels.as_ref().unwrap()["pod-template-hash"],
        hash
    );

    for replicas in [10, 2] {
        cluster
            .patch::<Deployment>("web", json!({"spec": {"replicas": replicas}}))
            .await;
        sleep(10).await;
        assert!(is_rolled_out(&cluster.deployment("web").await));
        assert_eq!(cluster.list::<Pod>().await.len(), replicas);
    }
    assert_eq!(cluster.list::<ReplicaSet>().await.len(), 1);
    assert_eq!(cluster.events("ScalingReplicaSet").await, 3);
}

/// Watches the pods and notes the fewest ready and the most running ones.
struct Bounds {
    fewest_ready: AtomicUsize,
    most: AtomicUsize,
}

async fn watch_bounds(cluster: &Cluster, shutdown: CancellationToken) -> Arc<Bounds> {
    let bounds = Arc::new(Bounds {
        fewest_ready: AtomicUsize::new(usize::MAX),
        most: AtomicUsize::new(0),
    });
    let mut pods = Informer::<Pod>::new(Arc::clone(cluster.client.api()), Vec::new());
    let (store, mut changes) = (pods.store(), pods.subscribe());
    pods.spawn(shutdown);
    store.wait_synced().await;
    let noted = Arc::clone(&bounds);
    tokio::spawn(async move {
        while changes.recv().await.is_some() {
            note(&noted, &store);
        }
    });
    bounds
}

fn note(bounds: &Bounds, store: &Store<Pod>) {
    let pods = store.snapshot();
    let alive = || {
        pods.iter()
            .filter(|pod| !pod.is_terminating() && !has_ended(pod))
    };
    bounds.fewest_ready.fetch_min(
        alive().filter(|pod| is_ready(pod)).count(),
        Ordering::Relaxed,
    );
    bounds.most.fetch_max(alive().count(), Ordering::Relaxed);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_stays_between_available_and_surge() {
    for (replicas, surge, unavailable, fewest, most) in [
        (10, json!("25%"), json!("25%"), 8, 13),
        (4, json!(1), json!(0), 4, 5),
        (4, json!(0), json!(1), 3, 4),
        (1, json!("25%"), json!("25%"), 1, 2),
        (3, json!(0), json!(0), 2, 3),
        (5, json!("100%"), json!("100%"), 0, 10),
    ] {
        let cluster = Cluster::start();
        cluster
            .create::<Deployment>(deployment(replicas, rolling(surge, unavailable)))
            .await;
        sleep(10).await;
        let shutdown = CancellationToken::new();
        let bounds = watch_bounds(&cluster, shutdown.clone()).await;
        update(&cluster, "v2").await;
        sleep(120).await;
        shutdown.cancel();
        let web = cluster.deployment("web").await;
        assert!(is_rolled_out(&web), "{:?}", web.status);
        let pods = cluster.list::<Pod>().await;
        assert_eq!(
            images(&pods),
            vec!["v2"; usize::try_from(replicas).unwrap()]
        );
        assert!(bounds.fewest_ready.load(Ordering::Relaxed) >= fewest);
        assert!(bounds.most.load(Ordering::Relaxed) <= most);
        assert_eq!(condition(&web, "Progressing").1, "NewReplicaSetAvailable");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_template_stops_at_the_limits_and_can_be_rolled_back() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(4, rolling(json!(1), json!(1))))
        .await;
    sleep(10).await;
    update(&cluster, "broken").await;
    sleep(60).await;
    let web = cluster.deployment("web").await;
    assert!(!is_rolled_out(&web));
    assert_eq!(web.status.as_ref().unwrap().available_replicas, Some(3));
    assert_eq!(condition(&web, "Available").0, "True");
    sleep(700).await;
    let web = cluster.deployment("web").await;
    assert_eq!(
        condition(&web, "Progressing"),
        ("False".into(), "ProgressDeadlineExceeded".into())
    );
    update(&cluster, "v1").await;
    sleep(60).await;
    let web = cluster.deployment("web").await;
    assert!(is_rolled_out(&web));
    assert_eq!(images(&cluster.pods().await), ["v1"; 4]);
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 2, "the first set was used again");
    assert_eq!(
        web.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"],
        "3"
    );
}

#[tokio::test(start_paused = true)]
async fn recreate_starts_no_new_pod_before_the_last_old_one_is_gone() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(3, json!({"type": "Recreate"})))
        .await;
    sleep(10).await;
    assert!(is_rolled_out(&cluster.deployment("web").await));
    update(&cluster, "v2").await;
    tokio::time::sleep(super::cluster::STOP_TIME / 2).await;
    assert_eq!(images(&cluster.list::<Pod>().await), ["v1"; 3]);
    sleep(10).await;
    assert_eq!(images(&cluster.list::<Pod>().await), ["v2"; 3]);
    let web = cluster.deployment("web").await;
    assert!(is_rolled_out(&web));
    assert_eq!(condition(&web, "Progressing").1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_scales_but_does_not_roll() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(2, rolling(json!(1), json!(0))))
        .await;
    sleep(10).await;
    cluster
        .patch::<Deployment>("web", json!({"spec": {"paused": true}}))
        .await;
    update(&cluster, "v2").await;
    cluster
        .patch::<Deployment>("web", json!({"spec": {"replicas": 4}}))
        .await;
    sleep(10).await;
    assert_eq!(images(&cluster.pods().await), ["v1"; 4]);
    let web = cluster.deployment("web").await;
    assert_eq!(
        condition(&web, "Progressing"),
        ("Unknown".into(), "DeploymentPaused".into())
    );
    cluster
        .patch::<Deployment>("web", json!({"spec": {"paused": false}}))
        .await;
    sleep(60).await;
    assert_eq!(images(&cluster.pods().await), ["v2"; 4]);
    assert!(is_rolled_out(&cluster.deployment("web").await));
}

#[tokio::test(start_paused = true)]
async fn history_is_kept_up_to_its_limit() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(1, rolling(json!(1), json!(0))))
        .await;
    for image in ["v2", "v3", "v4"] {
        sleep(30).await;
        update(&cluster, image).await;
    }
    sleep(30).await;
    let sets = cluster.list::<ReplicaSet>().await;
    assert_eq!(sets.len(), 2, "the present one and one of the past");
}

#[tokio::test(start_paused = true)]
async fn a_settled_deployment_causes_no_writes() {
    let cluster = Cluster::start();
    cluster
        .create::<Deployment>(deployment(3, rolling(json!(1), json!(0))))
        .await;
    sleep(30).await;
    let before = cluster.api.calls().len();
    // Less than the hour after which its Events are removed.
    sleep(50 * 60).await;
    assert_eq!(cluster.api.calls().len(), before);
}
