//! Promises of the rules.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::registry::{FieldError, Resource};
use crate::strategy::arbitrary::any_object;
use crate::strategy::registry;

fn resource(plural: &str) -> &'static Resource {
    registry()
        .iter()
        .find(|resource| resource.name.plural == plural)
        .expect("it is served")
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of an object after defaulting.
fn errors(plural: &str, mut object: Value) -> Vec<String> {
    let strategy = resource(plural).strategy;
    strategy.apply_defaults(&mut object);
    texts(&strategy.validate(&object))
}

fn update_errors(plural: &str, mut new: Value, mut old: Value) -> Vec<String> {
    let strategy = resource(plural).strategy;
    strategy.apply_defaults(&mut new);
    strategy.apply_defaults(&mut old);
    texts(&strategy.validate_update(&new, &old))
}

/// Errors of a pod whose specification is `spec`, with one good container unless it has its own.
fn pod_errors(spec: Value) -> Vec<String> {
    let mut pod = pod(json!([{"name": "a", "image": "b:1"}]));
    for (key, value) in spec.as_object().expect("a specification") {
        pod["spec"][key] = value.clone();
    }
    errors("pods", pod)
}

/// Errors of a pod's container that has `more` members.
fn container_errors(more: Value) -> Vec<String> {
    let mut container = json!({"name": "a", "image": "b:1"});
    for (key, value) in more.as_object().expect("members") {
        container[key] = value.clone();
    }
    pod_errors(json!({ "containers": [container] }))
}

/// The first error of each container is the expected one.
fn check_containers(cases: &[(Value, &str)]) {
    for (more, want) in cases {
        let errors = container_errors(more.clone());
        let first = errors.first().map(String::as_str).unwrap_or_default();
        assert_eq!(first, format!("spec.containers[0].{want}"), "{more}");
    }
}

fn pod(containers: Value) -> Value {
    json!({
        "metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": containers},
    })
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "a", "image": "b"}]},
            },
        },
    })
}

#[test]
fn what_kubectl_run_and_create_make_is_valid() {
    assert!(pod_errors(json!({})).is_empty());
    assert!(errors("deployments", deployment()).is_empty());
    let meta = json!({"name": "x", "namespace": "default"});
    for plural in [
        "configmaps",
        "secrets",
        "serviceaccounts",
        "leases",
        "events",
    ] {
        let mut object = json!({"metadata": meta});
        object["involvedObject"] = json!({"namespace": "default"});
        assert!(errors(plural, object).is_empty(), "{plural}");
    }
    for plural in ["namespaces", "nodes"] {
        assert!(
            errors(plural, json!({"metadata": {"name": "x"}})).is_empty(),
            "{plural}"
        );
    }
}

#[test]
fn names_are_refused_in_the_words_of_kubernetes() {
    let mut bad = pod(json!([{"name": "a", "image": "b"}]));
    bad["metadata"]["name"] = "Foo_".into();
    assert_eq!(
        errors("pods", bad),
        [
            "metadata.name: Invalid value: \"Foo_\": a lowercase RFC 1123 subdomain must consist \
             of lower case alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ]
    );
    assert_eq!(
        errors("namespaces", json!({"metadata": {"name": "a.b"}})),
        [
            "metadata.name: Invalid value: \"a.b\": a lowercase RFC 1123 label must consist of \
             lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            // The name becomes a label's value, where it is fine.
        ]
    );
    assert_eq!(
        errors("nodes", json!({"metadata": {}})),
        ["metadata.name: Required value: name or generateName is required"]
    );
    assert!(errors("nodes", json!({"metadata": {"generateName": "a-"}})).is_empty());
}

#[test]
fn metadata_is_checked() {
    let with = |metadata: Value| {
        let mut object = json!({"metadata": {"name": "x"}});
        for (key, value) in metadata.as_object().expect("members") {
            object["metadata"][key] = value.clone();
        }
        errors("nodes", object)
    };
    let value = with(json!({"labels": {"a": "b c"}}));
    assert!(value[0].starts_with(
        "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or"
    ));
    let key = with(json!({"labels": {"a/b/c": ""}}));
    assert!(key[0].starts_with("metadata.labels: Invalid value: \"a/b/c\": a qualified name must"));
    assert_eq!(
        with(json!({"annotations": {"a": "x".repeat(300 * 1024)}})),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    );
    assert_eq!(
        with(json!({"finalizers": ["mine"]})),
        [
            "metadata.finalizers: Invalid value: \"mine\": name is neither a standard finalizer \
          name nor is it fully qualified"
        ]
    );
    assert_eq!(
        with(json!({"namespace": "x"})),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    let owner = |name| {
        let mut owner = json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u"});
        owner["controller"] = true.into();
        owner
    };
    let two = with(json!({"ownerReferences": [owner("a"), owner("b")]}));
    assert!(two[0].ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for a \
         and b"
    ));
    let empty = with(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]}));
    assert_eq!(
        empty,
        ["metadata.ownerReferences[0].uid: Invalid value: \"\": must not be empty"]
    );
}

#[test]
fn containers_are_checked() {
    let cases = [
        (json!({"image": ""}), "image: Required value"),
        (json!({"name": ""}), "name: Required value"),
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
             \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"ports": [{"containerPort": 70000}]}),
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"ports": [{}]}),
            "ports[0].containerPort: Required value",
        ),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "ICMP"}]}),
            "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \
             \"UDP\"",
        ),
        (
            json!({"ports": [
                {"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80},
            ]}),
            "ports[1].hostPort: Duplicate value: \"TCP//80\"",
        ),
        (
            json!({"env": [{"name": ""}]}),
            "env[0].name: Required value",
        ),
        (
            json!({"env": [{"name": "a=b"}]}),
            "env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist \
             only of printable ASCII characters other than '='",
        ),
    ];
    check_containers(&cases);
}

#[test]
fn what_a_container_needs_from_pod_and_node_is_checked() {
    let cases = [
        (
            json!({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}),
            "volumeMounts[0].name: Not found: \"x\"",
        ),
        (
            json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit \
             of 1",
        ),
        (
            json!({"resources": {"requests": {"cpu": "-1"}}}),
            "resources.requests.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"resources": {"limits": {"gpu": "1"}}}),
            "resources.limits: Invalid value: \"gpu\": must be a standard resource for containers",
        ),
        (
            json!({"livenessProbe": {}}),
            "livenessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"readinessProbe": {"exec": {"command": ["a"]}, "grpc": {"port": 1}}}),
            "readinessProbe.grpc: Forbidden: may not specify more than 1 handler type",
        ),
        (
            json!({"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}}),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            json!({"securityContext": {"runAsUser": -1}}),
            "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, \
             inclusive",
        ),
    ];
    check_containers(&cases);
}

#[test]
fn pod_specifications_are_checked() {
    let cases = [
        (json!({"containers": []}), "containers: Required value"),
        (
            json!({"containers": [{"name": "a", "image": "b"}, {"name": "a", "image": "b"}]}),
            "containers[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"restartPolicy": "Sometimes"}),
            "restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
             \"OnFailure\", \"Never\"",
        ),
        (
            json!({"terminationGracePeriodSeconds": -1}),
            "terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"volumes": [{"name": "v"}, {"name": "v"}]}),
            "volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
            "volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": {}}]}),
            "volumes[0].secret.secretName: Required value",
        ),
        (
            json!({"tolerations": [{"operator": "Exists", "value": "x"}]}),
            "tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` \
             is 'Exists'",
        ),
        (
            json!({"initContainers": [{"name": "i", "image": "b", "lifecycle": {}}]}),
            "initContainers[0].lifecycle: Forbidden: may not be set for init containers without \
             restartPolicy=Always",
        ),
    ];
    for (spec, want) in cases {
        let errors = pod_errors(spec.clone());
        let first = errors.first().map(String::as_str).unwrap_or_default();
        assert_eq!(first, format!("spec.{want}"), "{spec}");
    }
}

#[test]
fn of_a_pod_the_image_may_change_and_little_else() {
    let old = pod(json!([{"name": "a", "image": "b:1"}]));
    let image = pod(json!([{"name": "a", "image": "b:2"}]));
    assert!(update_errors("pods", image, old.clone()).is_empty());
    let mut tolerant = old.clone();
    tolerant["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    let base = texts(&[]);
    assert_eq!(update_errors("pods", tolerant.clone(), old.clone()), base);
    let forbidden = update_errors("pods", old.clone(), tolerant);
    assert!(forbidden[0].starts_with(
        "spec: Forbidden: pod updates may not change fields other than \
         `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
         `spec.tolerations` (only additions to existing tolerations),\
         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
         negative)"
    ));
    let command = pod(json!([{"name": "a", "image": "b:1", "command": ["x"]}]));
    let errors = update_errors("pods", command, old.clone());
    assert!(
        errors[0].ends_with("\nchanged: spec.containers"),
        "{errors:?}"
    );
    let more = pod(json!([{"name": "a", "image": "b:1"}, {"name": "c", "image": "d"}]));
    assert_eq!(
        update_errors("pods", more, old),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

#[test]
fn workloads_are_checked() {
    let with = |pointer: &str, value: Value| {
        let mut object = deployment();
        *object.pointer_mut(pointer).expect("it is there") = value;
        errors("deployments", object)
    };
    assert_eq!(
        with("/spec/template/metadata/labels", json!({"app": "y"})),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"y\"}: `selector` does not \
          match template `labels`"
        ]
    );
    assert_eq!(
        with("/spec/selector", Value::Null),
        ["spec.selector: Required value"]
    );
    let mut zero = deployment();
    zero["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": "0%"});
    assert_eq!(
        errors("deployments", zero),
        [
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when \
          `maxSurge` is 0"
        ]
    );
    let mut never = deployment();
    never["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    never["spec"]["replicas"] = (-1).into();
    assert_eq!(
        errors("deployments", never),
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \
             \"Always\"",
        ]
    );
    let mut moved = deployment();
    moved["spec"]["selector"]["matchLabels"]["b"] = "c".into();
    assert_eq!(
        update_errors("deployments", moved, deployment()),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\"b\":\"c\"}}: field is \
          immutable"
        ]
    );
}

#[test]
fn data_is_checked() {
    let with = |more: Value| {
        let mut object = json!({"metadata": {"name": "x", "namespace": "default"}});
        for (key, value) in more.as_object().expect("members") {
            object[key] = value.clone();
        }
        object
    };
    let bad_key = errors("configmaps", with(json!({"data": {"a b": ""}})));
    assert!(bad_key[0].starts_with("data[a b]: Invalid value: \"a b\": a valid config key must"));
    let large = with(json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}}));
    assert_eq!(
        errors("configmaps", large),
        [": Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        update_errors(
            "configmaps",
            with(json!({"immutable": true, "data": {"a": "2"}})),
            with(json!({"immutable": true, "data": {"a": "1"}})),
        ),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    assert_eq!(
        update_errors(
            "secrets",
            with(json!({"type": "a"})),
            with(json!({"type": "b"}))
        ),
        ["type: Invalid value: \"a\": field is immutable"]
    );
    assert_eq!(
        errors("secrets", with(json!({"type": "kubernetes.io/ssh-auth"}))),
        ["data[ssh-privatekey]: Required value"]
    );
}

#[test]
fn taints_and_addresses_of_nodes_are_checked() {
    let node = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    let twice = errors("nodes", node(json!({"taints": [taint, taint]})));
    assert!(
        twice[0].ends_with(": taints must be unique by key and effect pair"),
        "{twice:?}"
    );
    assert_eq!(
        errors(
            "nodes",
            node(json!({"taints": [{"key": "a", "effect": "x"}]}))
        ),
        [
            "spec.taints[0].effect: Unsupported value: \"x\": supported values: \"NoSchedule\", \
          \"PreferNoSchedule\", \"NoExecute\""
        ]
    );
    let moved = update_errors(
        "nodes",
        node(json!({"podCIDR": "10.0.1.0/24"})),
        node(json!({"podCIDR": "10.0.0.0/24"})),
    );
    assert_eq!(
        moved,
        ["spec.podCIDR: Forbidden: node updates may not change podCIDR except from \"\" to valid"]
    );
}

#[test]
fn an_object_that_is_being_deleted_gets_no_new_finalizer() {
    let old = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["a/a"]}});
    let new = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["a/a", "b/b"]}});
    let errors = texts(&super::object_update(&new, &old));
    assert_eq!(
        errors,
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being \
          deleted, found new finalizers [\"b/b\"]"
        ]
    );
}

proptest! {
    #[test]
    fn no_object_makes_a_rule_panic(object in any_object(), old in any_object()) {
        for resource in registry() {
            let strategy = resource.strategy;
            let mut defaulted = object.clone();
            strategy.apply_defaults(&mut defaulted);
            for new in [&object, &defaulted] {
                let _ = texts(&strategy.validate(new));
                let _ = texts(&strategy.validate_update(new, &old));
            }
        }
    }
}
