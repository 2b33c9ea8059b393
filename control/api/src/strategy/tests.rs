//! Promises of the strategies.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::any_object;
use super::{registry, unknown_fields};
use crate::registry::Resource;

fn resource(plural: &str) -> &'static Resource {
    registry()
        .iter()
        .find(|resource| resource.name.plural == plural)
        .expect("it is served")
}

/// What `check_types` says about `object`.
fn mismatch(plural: &str, object: &Value) -> String {
    resource(plural)
        .strategy
        .check_types(object)
        .expect_err("a wrong type")
        .message
}

fn defaulted(plural: &str, mut object: Value) -> Value {
    resource(plural).strategy.apply_defaults(&mut object);
    object
}

#[test]
fn wrong_types_are_told_with_their_path_and_struct() {
    let cases = [
        (
            "deployments",
            json!({"spec": {"replicas": "3"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of \
             type int32",
        ),
        (
            "pods",
            json!({"spec": {"containers": [{}, {"env": [{"name": "A", "value": 1}]}]}}),
            "json: cannot unmarshal number into Go struct field \
             EnvVar.spec.containers.env.value of type string",
        ),
        (
            "pods",
            json!({"spec": "x"}),
            "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            "pods",
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field \
             ObjectMeta.metadata.labels.a of type string",
        ),
        (
            "pods",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}),
            "quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': \
             spec.containers[0].resources.limits.cpu",
        ),
        (
            "pods",
            json!({"spec": {"activeDeadlineSeconds": 1e30}}),
            "json: cannot unmarshal number 1e+30 into Go struct field \
             PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
    ];
    for (plural, object, want) in cases {
        assert_eq!(mismatch(plural, &object), want);
    }
}

#[test]
fn unknown_fields_are_found_with_their_full_path_and_dropped() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x", "creationTimestamp": null, "labels": {"anything": "goes"}},
        "spec": {"containers": [{"name": "a", "imagee": "b"}], "foo": {"bar": 1}},
        "status": {},
    });
    let decoded = resource("pods")
        .strategy
        .check_types(&object)
        .expect("types are right");
    let mut unknown = unknown_fields(&object, &decoded);
    unknown.sort();
    assert_eq!(unknown, ["spec.containers[0].imagee", "spec.foo"]);
    assert_eq!(
        decoded,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "x", "labels": {"anything": "goes"}},
            "spec": {"containers": [{"name": "a"}]},
            "status": {},
        })
    );
}

#[test]
fn values_that_have_several_spellings_are_known() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "10%"}},
            "selector": {"matchLabels": {}},
            "template": {"spec": {"containers": [{
                "name": "a",
                "env": [],
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Ki"}},
                "livenessProbe": {"httpGet": {"port": "http"}},
            }]}},
        },
    });
    let decoded = resource("deployments")
        .strategy
        .check_types(&object)
        .expect("types are right");
    assert!(unknown_fields(&object, &decoded).is_empty());
    let limits = decoded.pointer("/spec/template/spec/containers/0/resources/limits");
    assert_eq!(limits, Some(&json!({"cpu": "500m", "memory": "1Mi"})));
    assert_eq!(
        decoded.pointer("/spec/template/spec/containers/0/env"),
        Some(&json!([]))
    );
}

#[test]
fn a_bare_pod_gets_the_defaults_that_kubernetes_documents() {
    let spec = json!({"containers": [{
        "name": "a", "image": "busybox",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": {"cpu": "1"}},
        "livenessProbe": {"httpGet": {"port": 80}},
    }]});
    let pod = defaulted("pods", json!({"metadata": {"name": "x"}, "spec": spec}));
    let toleration = |key: &str| {
        let effect = "NoExecute";
        json!({"key": key, "operator": "Exists", "effect": effect, "tolerationSeconds": 300})
    };
    let want = json!({
        "containers": [{
            "name": "a", "image": "busybox", "imagePullPolicy": "Always",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
            "livenessProbe": {
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }],
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true,
        "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            toleration("node.kubernetes.io/not-ready"),
            toleration("node.kubernetes.io/unreachable"),
        ],
    });
    assert_eq!(pod["spec"], want);
}

#[test]
fn volumes_get_their_modes_and_a_volume_without_a_source_is_an_empty_dir() {
    let spec = json!({"volumes": [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "x"}},
        {"name": "c", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "x"}}]}},
        ]}},
        {"name": "d", "hostPath": {"path": "/"}},
    ]});
    let pod = defaulted("pods", json!({ "spec": spec }));
    let want = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "c", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
            {"downwardAPI": {"items": [
                {"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "x"}},
            ]}},
        ]}},
        {"name": "d", "hostPath": {"path": "/", "type": ""}},
    ]);
    assert_eq!(pod["spec"]["volumes"], want);
}

#[test]
fn a_deployment_gets_a_rolling_update_and_its_template_no_pod_admission() {
    let deployment = defaulted(
        "deployments",
        json!({"spec": {"template": {"spec": {"containers": [{"image": "a:1"}]}}}}),
    );
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["revisionHistoryLimit"], 10);
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(
        spec["strategy"],
        json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        })
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "IfNotPresent");
    for absent in [
        "tolerations",
        "serviceAccountName",
        "priority",
        "enableServiceLinks",
    ] {
        assert_eq!(pod.get(absent), None, "{absent}");
    }
    let recreate = defaulted(
        "deployments",
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
    );
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn string_data_of_a_secret_becomes_data() {
    let secret = defaulted(
        "secrets",
        json!({"data": {"a": "eA=="}, "stringData": {"b": "y"}}),
    );
    assert_eq!(
        secret,
        json!({"data": {"a": "eA==", "b": "eQ=="}, "type": "Opaque"})
    );
}

#[test]
fn a_new_pod_is_pending_and_its_status_is_not_the_users() {
    let strategy = resource("pods").strategy;
    let mut pod =
        json!({"metadata": {}, "spec": {"containers": [{}]}, "status": {"phase": "Running"}});
    strategy.prepare_for_create(&mut pod);
    assert_eq!(
        pod["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(pod["metadata"]["generation"], 1);
}

#[test]
fn the_generation_rises_with_the_specification_and_not_with_the_status() {
    let strategy = resource("deployments").strategy;
    let old = json!({
        "metadata": {"generation": 4}, "spec": {"replicas": 1}, "status": {"replicas": 1},
    });
    let mut scaled = json!({"metadata": {}, "spec": {"replicas": 2}, "status": {"replicas": 9}});
    strategy.prepare_for_update(&mut scaled, &old);
    assert_eq!(scaled["metadata"]["generation"], 5);
    assert_eq!(scaled["status"], json!({"replicas": 1}));
    let mut status = json!({"metadata": {}, "spec": {"replicas": 7}, "status": {"replicas": 2}});
    strategy.prepare_for_status_update(&mut status, &old);
    assert_eq!(status["metadata"]["generation"], 4);
    assert_eq!(status["spec"], json!({"replicas": 1}));
    assert_eq!(status["status"], json!({"replicas": 2}));
}

#[test]
fn a_namespace_is_active_and_labelled_with_its_name() {
    let mut namespace = defaulted("namespaces", json!({"metadata": {"name": "x"}}));
    resource("namespaces")
        .strategy
        .prepare_for_create(&mut namespace);
    let label = namespace.pointer("/metadata/labels/kubernetes.io~1metadata.name");
    assert_eq!(label, Some(&json!("x")));
    assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
}

#[test]
fn fields_of_selectors_are_those_of_kubernetes() {
    let pod =
        json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running", "podIPs": [{"ip": "1"}]}});
    let field =
        |plural: &str, object: &Value, path: &str| resource(plural).strategy.field(object, path);
    assert_eq!(field("pods", &pod, "spec.nodeName").as_deref(), Some("n"));
    assert_eq!(
        field("pods", &pod, "status.phase").as_deref(),
        Some("Running")
    );
    assert_eq!(field("pods", &pod, "status.podIPs").as_deref(), Some("1"));
    assert_eq!(
        field("pods", &pod, "spec.hostNetwork").as_deref(),
        Some("false")
    );
    assert_eq!(field("pods", &pod, "spec.image"), None);
    assert_eq!(
        field("nodes", &json!({}), "spec.unschedulable").as_deref(),
        Some("false")
    );
    assert_eq!(field("configmaps", &json!({}), "data"), None);
    let event = json!({"involvedObject": {"name": "web"}, "reportingComponent": "kubelet"});
    assert_eq!(
        field("events", &event, "involvedObject.name").as_deref(),
        Some("web")
    );
    assert_eq!(
        field("events", &event, "source").as_deref(),
        Some("kubelet")
    );
}

proptest! {
    #[test]
    fn no_object_makes_a_strategy_panic(object in any_object(), old in any_object()) {
        for resource in registry() {
            let strategy = resource.strategy;
            if let Ok(decoded) = strategy.check_types(&object) {
                let _ = unknown_fields(&object, &decoded);
            }
            let mut new = object.clone();
            strategy.apply_defaults(&mut new);
            let once = new.clone();
            strategy.apply_defaults(&mut new);
            prop_assert_eq!(&once, &new, "defaults are applied once");
            strategy.prepare_for_create(&mut new);
            strategy.prepare_for_update(&mut new, &old);
            strategy.prepare_for_status_update(&mut new, &old);
            let _ = strategy.field(&object, "status.phase");
        }
    }

    #[test]
    fn what_has_been_decoded_decodes_to_itself(object in any_object()) {
        for resource in registry() {
            if let Ok(decoded) = resource.strategy.check_types(&object) {
                prop_assert_eq!(resource.strategy.check_types(&decoded), Ok(decoded));
            }
        }
    }
}
