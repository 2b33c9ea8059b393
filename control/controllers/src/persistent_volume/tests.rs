//! What the controller does while its informers have heard of nothing.

use serde_json::{Value, json};
use swiftlet_client::api::DeleteParameters;
use swiftlet_client::fake::FakeApi;

use super::*;

fn behind(api: &Arc<FakeApi>) -> Arc<Controller> {
    let api: Arc<dyn Api> = api.clone();
    let (mut informers, shutdown) = (Informers::new(&api), CancellationToken::new());
    PersistentVolumeController::new(&api, &mut informers, &shutdown).controller
}

async fn create<T: Object>(controller: &Controller, mut object: Value) -> T {
    object["apiVersion"] = T::API_VERSION.into();
    object["kind"] = T::KIND.into();
    let object: T = serde_json::from_value(object).unwrap();
    controller.client.create(&object).await.unwrap()
}

async fn delete<T: Object>(controller: &Controller, object: &T) {
    let now = DeleteParameters {
        grace_period_seconds: Some(0),
        ..DeleteParameters::default()
    };
    let key = object.key();
    let deleted = controller.client.delete::<T>(&key, now);
    deleted.await.unwrap();
}

#[tokio::test]
async fn a_claim_is_not_let_go_while_the_api_has_a_pod_that_uses_it() {
    let api = FakeApi::new();
    let controller = behind(&api);
    let finalizers = ["kubernetes.io/pvc-protection"];
    let metadata = json!({ "name": "c", "namespace": "default", "finalizers": finalizers });
    let claim = json!({ "metadata": metadata, "spec": {} });
    let claim: PersistentVolumeClaim = create(&controller, claim).await;
    let source = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
    let spec = json!({ "nodeName": "n", "containers": [{ "name": "c" }], "volumes": [source] });
    let pod = json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": spec });
    let pod: Pod = create(&controller, pod).await;
    delete(&controller, &claim).await;
    let get = || {
        controller
            .client
            .get::<PersistentVolumeClaim>("default", "c")
    };
    let claim = get().await.unwrap();
    assert!(claim.is_terminating());
    controller.sync_claim(&claim).await.unwrap();
    assert!(get().await.is_ok(), "a pod uses it");
    delete(&controller, &pod).await;
    controller.sync_claim(&claim).await.unwrap();
    assert!(get().await.is_err());
}

#[tokio::test]
async fn a_volume_that_has_changed_since_is_not_let_go() {
    let api = FakeApi::new();
    let controller = behind(&api);
    let metadata = json!({ "name": "v", "finalizers": ["kubernetes.io/pv-protection"] });
    let status = json!({ "phase": "Available" });
    let volume = json!({ "metadata": metadata, "spec": {}, "status": status });
    let volume: PersistentVolume = create(&controller, volume).await;
    delete(&controller, &volume).await;
    let get = || controller.client.get::<PersistentVolume>("", "v");
    let known = get().await.unwrap();
    let mut bound = known.clone();
    let reference = bound.spec.get_or_insert_default();
    reference.claim_ref = serde_json::from_value(json!({ "name": "c", "uid": "u" })).unwrap();
    controller.client.update(&bound).await.unwrap();
    assert!(controller.sync_volume(&known).await.is_err());
    assert!(get().await.is_ok(), "it is bound now");
}

#[tokio::test]
async fn a_claim_gets_the_volume_that_the_scheduler_has_just_reserved_and_no_second_one() {
    let api = FakeApi::new();
    let door: Arc<dyn Api> = api.clone();
    let (mut informers, shutdown) = (Informers::new(&door), CancellationToken::new());
    let PersistentVolumeController {
        controller,
        volumes,
        classes,
        ..
    } = PersistentVolumeController::new(&door, &mut informers, &shutdown);
    let class = json!({ "metadata": { "name": "late" }, "provisioner": "p",
        "volumeBindingMode": "WaitForFirstConsumer" });
    create::<StorageClass>(&controller, class).await;
    let claim = json!({ "metadata": { "name": "c", "namespace": "default" },
        "spec": { "storageClassName": "late" } });
    let claim: PersistentVolumeClaim = create(&controller, claim).await;
    let source = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
    let spec = json!({ "nodeName": "n", "containers": [{ "name": "c" }], "volumes": [source] });
    let pod = json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": spec });
    create::<Pod>(&controller, pod).await;
    for name in ["a", "z"] {
        let spec = json!({ "storageClassName": "late" });
        let volume = json!({ "metadata": { "name": name }, "spec": spec });
        create::<PersistentVolume>(&controller, volume).await;
    }
    informers.spawn(&shutdown);
    classes.spawn(shutdown.clone());
    assert!(controller.stores.pods.wait_synced().await);
    assert!(controller.classes.wait_synced().await);
    // The informer of volumes hears of nothing: it does not run.
    drop(volumes);
    let mut reserved: PersistentVolume = controller.client.get("", "z").await.unwrap();
    swiftlet_proto::claim::reserve_for(&mut reserved, &claim);
    controller.client.update(&reserved).await.unwrap();
    controller.sync_claim(&claim).await.unwrap();
    let bound: PersistentVolumeClaim = controller.client.get("default", "c").await.unwrap();
    assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some("z"));
    shutdown.cancel();
}
