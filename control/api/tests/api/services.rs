//! Services: their addresses and node ports. And volumes with their claims.

use serde_json::{Value, json};
use swiftlet_client::api::{ObjectName, resources};

use crate::support::{Inside, inside};

fn service(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec })
}

fn named(name: &str) -> ObjectName {
    ObjectName::new(resources::SERVICES, "default", name)
}

async fn made(server: &Inside, name: &str, spec: Value) -> Value {
    let object = service(name, spec);
    server.create(resources::SERVICES, object).await.unwrap()["spec"].clone()
}

#[tokio::test]
async fn a_service_gets_an_address_of_its_own_and_keeps_it() {
    let server = inside().await;
    let own = server.get(&named("kubernetes")).await.unwrap();
    assert_eq!(own["spec"]["clusterIP"], "10.96.0.1");
    let ports = json!([{ "port": 80 }]);
    let spec = made(&server, "web", json!({ "ports": ports })).await;
    let address = spec["clusterIP"].as_str().unwrap().to_string();
    assert!(address.starts_with("10.96.") && address != "10.96.0.1");
    assert_eq!(spec["clusterIPs"], json!([address]));
    assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
    assert_eq!(spec["type"], "ClusterIP");
    assert_eq!(spec["internalTrafficPolicy"], "Cluster");
    assert_eq!(
        spec["ports"],
        json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }])
    );
    // Deterministic: it comes back with the name.
    server.delete(&named("web"), None).await.unwrap();
    let again = made(&server, "web", json!({ "ports": ports })).await;
    assert_eq!(again["clusterIP"], address);
    let taken = service("other", json!({ "clusterIP": address, "ports": ports }));
    let error = server.create(resources::SERVICES, taken).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Service \"other\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed \
             to allocate IP {address}: provided IP is already allocated"
        )
    );
    let mut update = server.get(&named("web")).await.unwrap();
    update["spec"]["clusterIP"] = Value::Null;
    update["spec"]["clusterIPs"] = Value::Null;
    update["spec"]["ports"][0]["port"] = 81.into();
    let updated = server.update(&named("web"), &update).await.unwrap();
    assert_eq!(updated["spec"]["clusterIP"], address);
    update["spec"]["clusterIP"] = "10.96.7.7".into();
    update["metadata"]["resourceVersion"] = Value::Null;
    let error = server.update(&named("web"), &update).await.unwrap_err();
    assert!(
        error.to_string().contains("may not change once set"),
        "{error}"
    );
    let headless = made(&server, "headless", json!({ "clusterIP": "None" })).await;
    assert_eq!(headless["clusterIPs"], json!(["None"]));
    let elsewhere = json!({ "type": "ExternalName", "externalName": "example.com" });
    assert_eq!(
        made(&server, "else", elsewhere).await["clusterIP"],
        Value::Null
    );
}

#[tokio::test]
async fn node_ports_are_given_out_once_and_go_with_the_type() {
    let server = inside().await;
    let ports = |node_port: i64| json!([{ "port": 80, "nodePort": node_port }]);
    let spec = json!({ "type": "NodePort", "ports": ports(30_080) });
    let first = made(&server, "first", spec.clone()).await;
    assert_eq!(first["externalTrafficPolicy"], "Cluster");
    let error = server
        .create(resources::SERVICES, service("second", spec))
        .await;
    let why = error.unwrap_err().to_string();
    assert!(
        why.contains(
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
        ),
        "{why}"
    );
    let far = service("far", json!({ "type": "NodePort", "ports": ports(80) }));
    let why = server.create(resources::SERVICES, far).await.unwrap_err();
    assert!(why.to_string().contains("not in the valid range"), "{why}");
    let free = json!({ "type": "NodePort", "ports": ports(0) });
    let third = made(&server, "third", free).await;
    let given = third["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30_000..=32_767).contains(&given) && given != 30_080);
    let patch = json!({ "spec": { "type": "ClusterIP" } });
    let inner = server.merge(&named("third"), patch).await.unwrap();
    assert_eq!(inner["spec"]["ports"][0]["nodePort"], Value::Null);
    assert_eq!(inner["spec"]["externalTrafficPolicy"], Value::Null);
}

#[tokio::test]
async fn a_claim_gets_the_default_class_and_is_protected() {
    let server = inside().await;
    let class = json!({
        "metadata": {
            "name": "fast",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": "example.com/disk",
    });
    let class = server
        .create(resources::STORAGE_CLASSES, class)
        .await
        .unwrap();
    assert_eq!(class["reclaimPolicy"], "Delete");
    assert_eq!(class["volumeBindingMode"], "Immediate");
    let claim = json!({
        "metadata": { "name": "data", "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let claims = resources::PERSISTENT_VOLUME_CLAIMS;
    let made = server.create(claims, claim.clone()).await.unwrap();
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["spec"]["volumeMode"], "Filesystem");
    assert_eq!(made["status"]["phase"], "Pending");
    let finalizers = json!(["kubernetes.io/pvc-protection"]);
    assert_eq!(made["metadata"]["finalizers"], finalizers);
    let name = ObjectName::new(claims, "default", "data");
    let patch = json!({ "spec": { "accessModes": ["ReadWriteMany"] } });
    let error = server.merge(&name, patch).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("spec is immutable after creation"),
        "{error}"
    );
    let mut empty = claim;
    empty["spec"] = json!({});
    let error = server.create(claims, empty).await.unwrap_err().to_string();
    for part in [
        "spec.accessModes: Required value",
        "spec.resources[storage]: Required value",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let volume = json!({
        "metadata": { "name": "v" },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "local": { "path": "/disk" } },
    });
    let error = server.create(resources::PERSISTENT_VOLUMES, volume).await;
    let why = error.unwrap_err().to_string();
    assert!(why.contains("Local volume requires node affinity"), "{why}");
}
