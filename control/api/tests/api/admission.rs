//! What admission does to new pods, and which it refuses.

use std::sync::Arc;

use serde_json::{Value, json};
use swiftlet_api::{ApiOptions, ApiServer};
use swiftlet_client::api::{ObjectName, resources};
use swiftlet_store::{Store, StoreOptions};

use crate::support::{Inside, inside, pod, user};

/// A server that gives pods the tokens of their accounts.
async fn with_accounts() -> Inside {
    let options = StoreOptions::in_memory();
    let (store, _) = Store::open(options).await.expect("a store in memory opens");
    let options = ApiOptions {
        service_account_admission: true,
        ..ApiOptions::default()
    };
    let api = ApiServer::new(store, options);
    api.bootstrap().await.expect("a cluster can begin");
    let door = api.local(user("kubernetes-admin", &["system:masters"]));
    Inside {
        api,
        door: Arc::clone(&door),
    }
}

async fn refusal(server: &Inside, pod: Value) -> (i32, String) {
    let error = server.create(resources::PODS, pod).await.unwrap_err();
    (error.code(), error.to_string())
}

#[tokio::test]
async fn every_container_finds_the_token_of_the_pods_account() {
    let server = with_accounts().await;
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut object = pod("web");
    object["spec"]["initContainers"] = json!([{ "name": "init", "image": "busybox" }]);
    object["spec"]["volumes"] = json!([{ "name": "own", "emptyDir": {} }]);
    let own = json!({ "name": "own", "mountPath": place });
    let other = json!({ "name": "other", "image": "busybox", "volumeMounts": [own] });
    object["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(other);
    let made = server.create(resources::PODS, object).await.unwrap();
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    let volume = &spec["volumes"][1];
    let name = volume["name"].as_str().unwrap();
    assert!(
        name.starts_with("kube-api-access-") && name.len() == 21,
        "{name}"
    );
    let field = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    let certificate = json!([{ "key": "ca.crt", "path": "ca.crt" }]);
    let sources = json!([
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "name": "kube-root-ca.crt", "items": certificate } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": field }] } },
    ]);
    let projected = json!({ "defaultMode": 420, "sources": sources });
    assert_eq!(volume["projected"], projected);
    let mount = json!({ "name": name, "readOnly": true, "mountPath": place });
    for container in [&spec["initContainers"][0], &spec["containers"][0]] {
        assert_eq!(container["volumeMounts"], json!([mount]));
    }
    assert_eq!(spec["containers"][1]["volumeMounts"], json!([own]));
}

#[tokio::test]
async fn pod_and_account_can_do_without_a_token_and_the_account_names_pull_secrets() {
    let server = with_accounts().await;
    let account = json!({
        "metadata": { "name": "robot", "namespace": "default" },
        "automountServiceAccountToken": false,
        "imagePullSecrets": [{ "name": "registry" }],
    });
    server
        .create(resources::SERVICE_ACCOUNTS, account)
        .await
        .unwrap();
    let mut object = pod("web");
    object["spec"]["serviceAccountName"] = "robot".into();
    let made = server.create(resources::PODS, object).await.unwrap();
    assert_eq!(made["spec"]["volumes"], Value::Null);
    assert_eq!(
        made["spec"]["imagePullSecrets"],
        json!([{ "name": "registry" }])
    );
    let mut object = pod("bare");
    object["spec"]["automountServiceAccountToken"] = false.into();
    let made = server.create(resources::PODS, object).await.unwrap();
    assert_eq!(made["spec"]["volumes"], Value::Null);
    let mut object = pod("lost");
    object["spec"]["serviceAccountName"] = "nobody".into();
    let why = "pods \"lost\" is forbidden: error looking up service account default/nobody: \
               serviceaccount \"nobody\" not found";
    assert_eq!(refusal(&server, object).await, (403, why.to_owned()));
}

#[tokio::test]
async fn a_mirror_pod_has_a_node_and_no_account() {
    let server = with_accounts().await;
    let mirror = json!({ "kubernetes.io/config.mirror": "hash" });
    let mut object = pod("static-n1");
    object["metadata"]["annotations"] = mirror;
    let (code, why) = refusal(&server, object.clone()).await;
    assert_eq!(code, 422);
    assert!(
        why.contains("must set spec.nodeName if mirror pod annotation is set"),
        "{why}"
    );
    object["spec"]["nodeName"] = "n1".into();
    let mut with_account = object.clone();
    with_account["spec"]["serviceAccountName"] = "default".into();
    let why = "pods \"static-n1\" is forbidden: a mirror pod may not reference service accounts";
    assert_eq!(refusal(&server, with_account).await, (403, why.to_owned()));
    let named = [
        (
            "/imagePullSecrets",
            json!([{ "name": "registry" }]),
            "secrets",
        ),
        (
            "/volumes",
            json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]),
            "persistentvolumeclaims",
        ),
        (
            "/volumes",
            json!([{ "name": "v", "configMap": { "name": "settings" } }]),
            "configmaps",
        ),
        (
            "/containers/0/envFrom",
            json!([{ "configMapRef": { "name": "settings" } }]),
            "configmaps",
        ),
    ];
    for (place, value, what) in named {
        let mut naming = object.clone();
        let (above, field) = place.rsplit_once('/').unwrap();
        naming["spec"].pointer_mut(above).unwrap()[field] = value;
        let why = format!("pods \"static-n1\" is forbidden: a mirror pod may not reference {what}");
        assert_eq!(refusal(&server, naming).await, (403, why));
    }
    let made = server.create(resources::PODS, object).await.unwrap();
    assert_eq!(made["spec"]["serviceAccountName"], Value::Null);
    assert_eq!(made["spec"]["volumes"], Value::Null);
    let name = ObjectName::new(resources::PODS, "default", "static-n1");
    let patch = json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": null } } });
    let why = server.merge(&name, patch).await.unwrap_err().to_string();
    assert!(
        why.contains("may not remove or update mirror pod annotation"),
        "{why}"
    );
}

#[tokio::test]
async fn a_pods_priority_is_that_of_its_class_or_of_the_default_one() {
    let server = inside().await;
    let made = server.create(resources::PODS, pod("plain")).await.unwrap();
    assert_eq!(made["spec"]["priority"], 0);
    assert_eq!(made["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    let mut object = pod("system");
    object["spec"]["priorityClassName"] = "system-node-critical".into();
    let made = server.create(resources::PODS, object).await.unwrap();
    assert_eq!(made["spec"]["priority"], 2_000_001_000);
    let class = json!({ "metadata": { "name": "low" }, "value": 7, "globalDefault": true,
        "preemptionPolicy": "Never" });
    server
        .create(resources::PRIORITY_CLASSES, class.clone())
        .await
        .unwrap();
    let made = server.create(resources::PODS, pod("later")).await.unwrap();
    assert_eq!(made["spec"]["priorityClassName"], "low");
    assert_eq!(made["spec"]["priority"], 7);
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");
    let mut object = pod("lost");
    object["spec"]["priorityClassName"] = "none".into();
    let why = "pods \"lost\" is forbidden: no PriorityClass with name none was found";
    assert_eq!(refusal(&server, object).await, (403, why.to_owned()));
    let mut object = pod("greedy");
    object["spec"]["priority"] = 9.into();
    assert_eq!(refusal(&server, object).await.0, 403);
    let mut second = class;
    second["metadata"]["name"] = "second".into();
    let error = server.create(resources::PRIORITY_CLASSES, second).await;
    assert_eq!(error.unwrap_err().code(), 403);
}

#[tokio::test]
async fn a_runtime_class_adds_its_overhead_and_its_place() {
    let server = inside().await;
    let class = json!({
        "metadata": { "name": "vm" },
        "handler": "kata",
        "overhead": { "podFixed": { "cpu": "250m" } },
        "scheduling": {
            "nodeSelector": { "kvm": "yes" },
            "tolerations": [{ "key": "vm", "operator": "Exists" }],
        },
    });
    server
        .create(resources::RUNTIME_CLASSES, class)
        .await
        .unwrap();
    let with = |name: &str, class: &str| {
        let mut object = pod(name);
        object["spec"]["runtimeClassName"] = class.into();
        object
    };
    let made = server
        .create(resources::PODS, with("a", "vm"))
        .await
        .unwrap();
    assert_eq!(made["spec"]["overhead"], json!({ "cpu": "250m" }));
    assert_eq!(made["spec"]["nodeSelector"], json!({ "kvm": "yes" }));
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().any(|one| one["key"] == "vm"));
    let why = "pods \"b\" is forbidden: pod rejected: RuntimeClass \"none\" not found";
    assert_eq!(
        refusal(&server, with("b", "none")).await,
        (403, why.to_owned())
    );
    let mut object = with("c", "vm");
    object["spec"]["nodeSelector"] = json!({ "kvm": "no" });
    let (code, why) = refusal(&server, object).await;
    assert!(
        code == 403 && why.contains("conflict: runtimeClass.scheduling"),
        "{why}"
    );
    let mut object = pod("d");
    object["spec"]["overhead"] = json!({ "cpu": "1" });
    assert_eq!(refusal(&server, object).await.0, 403);
}
