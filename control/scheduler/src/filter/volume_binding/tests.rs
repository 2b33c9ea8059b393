use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use swiftlet_client::reflector::{Writer, reflector};

use super::*;

fn object<T: Object>(mut value: Value) -> Arc<T> {
    value["apiVersion"] = json!(T::API_VERSION);
    value["kind"] = json!(T::KIND);
    value["metadata"]["uid"] = value["metadata"]["name"].clone();
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A volume of the class `late`.
fn volume(name: &str, holder: Option<&str>) -> Arc<PersistentVolume> {
    let holder = holder.map(|name| json!({ "name": name, "namespace": "default", "uid": name }));
    let spec = json!({ "storageClassName": "late", "claimRef": holder });
    object(json!({ "metadata": { "name": name }, "spec": spec }))
}

/// Knows one volume, one claim, and one node.
fn plugin() -> (VolumeBinding, Writer<PersistentVolume>) {
    let (mut volumes, volume_store) = reflector(Vec::new());
    let (mut claims, claim_store) = reflector(Vec::new());
    let (mut classes, class_store) = reflector::<StorageClass>(Vec::new());
    let (mut nodes, node_store) = reflector::<Node>(Vec::new());
    volumes.restart(vec![volume("v", None)]);
    let claim: Arc<PersistentVolumeClaim> = object(json!({
        "metadata": { "name": "data", "namespace": "default" },
        "spec": { "storageClassName": "late" },
    }));
    claims.restart(vec![claim]);
    classes.restart(vec![object(json!({
        "metadata": { "name": "late" },
        "provisioner": NO_PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }))]);
    nodes.restart(vec![object(json!({ "metadata": { "name": "n" } }))]);
    let stores = VolumeStores {
        claims: claim_store,
        volumes: volume_store,
        classes: class_store,
        nodes: node_store,
    };
    let reservations = Reservations::default();
    let plugin = VolumeBinding {
        stores,
        reservations,
    };
    (plugin, volumes)
}

fn pod() -> Arc<Pod> {
    let source = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    object(json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "containers": [{ "name": "c" }], "volumes": [source] },
    }))
}

#[test]
fn a_pod_whose_volume_went_after_the_filter_found_it_is_not_placed() {
    let (plugin, mut volumes) = plugin();
    let (pod, mut cycle) = (pod(), Cycle::default());
    plugin
        .pre_filter(&mut cycle, &pod, &Snapshot::default())
        .unwrap();
    let node = Place {
        name: "n",
        labels: None,
    };
    let found = volumes_for(&cycle.get::<Claims>().unwrap().waiting, node);
    assert_eq!(found.unwrap().len(), 1);
    volumes.apply(volume("v", Some("other")));
    let refused = plugin.reserve(&pod, "n").unwrap_err();
    assert_eq!(refused, Rejection::new(PLUGIN, NO_VOLUME));
    volumes.apply(volume("v", None));
    plugin.reserve(&pod, "n").unwrap();
    assert_eq!(plugin.reservations.of(pod.uid()).len(), 1);
}
