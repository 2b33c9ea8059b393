use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::*;
use crate::framework::{Cycle, Filter};
use crate::node_info::{NodeInfo, PodUse};
use crate::resources::{Unrequested, pod_requests};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn node(spec: Value) -> NodeInfo {
    let object = json!({
        "metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"}},
    });
    NodeInfo::new(Arc::new(serde_json::from_value::<Node>(object).unwrap()))
}

fn reasons(filter: &dyn Filter, pod: &Pod, node: &NodeInfo) -> Vec<String> {
    filter
        .filter(&Cycle::default(), pod, node)
        .err()
        .map_or(Vec::new(), |error| error.reasons)
}

#[test]
fn requests_are_summed_as_kubernetes_sums_them() {
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let pod = pod(json!({
        "initContainers": [
            {"name": "i", "resources": requests("1")},
            {"name": "s", "restartPolicy": "Always", "resources": requests("300m")},
            {"name": "j", "resources": requests("1500m")},
        ],
        "containers": [
            {"name": "a", "resources": requests("500m")},
            {"name": "b", "resources": requests("700m")},
        ],
        "overhead": {"cpu": "10m"},
    }));
    // Peak: the sidecar beside the second init container, 1800m; main containers need 1500m.
    assert_eq!(pod_requests(&pod, Unrequested::Zero).get("cpu"), 1810);
}

#[test]
fn a_port_of_the_node_is_given_to_one_pod_at_a_time() {
    let with = |port: Value| pod(json!({"containers": [{"name": "a", "ports": [port]}]}));
    let web = with(json!({"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}));
    let mut node = node(json!({}));
    assert!(reasons(&NodePorts, &web, &node).is_empty());
    node.add(&PodUse::of(&web));
    assert_eq!(
        reasons(&NodePorts, &web, &node),
        ["node(s) didn't have free ports for the requested pod ports"]
    );
    let local = json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"});
    assert!(!reasons(&NodePorts, &with(local), &node).is_empty());
    let udp = json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"});
    assert!(reasons(&NodePorts, &with(udp), &node).is_empty());
    node.remove(&PodUse::of(&web));
    assert!(reasons(&NodePorts, &web, &node).is_empty());
}

#[test]
fn every_shortage_of_a_node_is_named() {
    let greedy = pod(json!({"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "3", "memory": "2Gi", "gpu": "1"}}},
    ]}));
    let mut node = node(json!({}));
    node.add(&PodUse::default());
    node.add(&PodUse::default());
    assert_eq!(
        reasons(&NodeResourcesFit, &greedy, &node),
        [
            "Too many pods",
            "Insufficient cpu",
            "Insufficient gpu",
            "Insufficient memory"
        ]
    );
}

#[test]
fn taints_repel_unless_tolerated() {
    let tainted = node(json!({"taints": [
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]}));
    let expected = "node(s) had untolerated taint {node.kubernetes.io/not-ready: }";
    assert_eq!(
        reasons(&TaintToleration, &pod(json!({"containers": []})), &tainted),
        [expected]
    );
    let key = "node.kubernetes.io/not-ready";
    for toleration in [
        json!({"operator": "Exists"}),
        json!({"key": key}),
        json!({"key": key, "effect": "NoSchedule"}),
    ] {
        let tolerant = pod(json!({"containers": [], "tolerations": [toleration]}));
        assert!(reasons(&TaintToleration, &tolerant, &tainted).is_empty());
    }
    let other = json!({"key": key, "effect": "NoExecute", "operator": "Exists"});
    let intolerant = pod(json!({"containers": [], "tolerations": [other]}));
    assert_eq!(reasons(&TaintToleration, &intolerant, &tainted).len(), 1);
}

#[test]
fn a_cordoned_node_takes_nothing_new() {
    let cordoned = node(json!({"unschedulable": true}));
    let plain = pod(json!({"containers": []}));
    assert_eq!(
        reasons(&NodeUnschedulable, &plain, &cordoned),
        ["node(s) were unschedulable"]
    );
    assert!(reasons(&NodeUnschedulable, &plain, &node(json!({}))).is_empty());
}

#[test]
fn node_selectors_and_required_affinity_must_hold() {
    let node = node(json!({}));
    let affinity = |terms: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms}}})
    };
    let expression = |key: &str, operator: &str, values: &[&str]| {
        let requirement = json!({"key": key, "operator": operator, "values": values});
        json!({"matchExpressions": [requirement]})
    };
    let terms = |terms: Value| json!({"containers": [], "affinity": affinity(terms)});
    let selector = |pairs: &[(&str, &str)]| {
        let labels: BTreeMap<_, _> = pairs.iter().copied().collect();
        json!({"containers": [], "nodeSelector": labels})
    };
    let field =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    for (spec, fits) in [
        (selector(&[("zone", "a")]), true),
        (selector(&[("zone", "b")]), false),
        (terms(json!([expression("cores", "Gt", &["4"])])), true),
        (terms(json!([expression("cores", "Lt", &["4"])])), false),
        (
            json!({"containers": [], "affinity": affinity(json!([
            expression("zone", "In", &["x"]), expression("zone", "NotIn", &["y"])]))}),
            true,
        ),
        (terms(json!([{}])), false),
        (terms(json!([field])), true),
    ] {
        let reasons = reasons(&NodeAffinity, &pod(spec.clone()), &node);
        assert_eq!(reasons.is_empty(), fits, "{spec}");
    }
}
