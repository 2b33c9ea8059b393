//! Rules for what a pod's containers are told, how they end, and how they are confined.

use serde_json::{Value, json};

use super::pod;

/// The errors of a bare pod with these fields in its container and its specification.
fn errors(container: Value, spec: Value) -> Vec<String> {
    let mut one = json!({
        "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
    });
    merge(&mut one, container);
    let mut all = json!({
        "containers": [one], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
    });
    merge(&mut all, spec);
    let object = json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": all });
    pod(&object).iter().map(ToString::to_string).collect()
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().cloned().unwrap_or_default() {
        into[key] = value;
    }
}

#[test]
fn what_is_right_is_not_refused() {
    let container = json!({
        "restartPolicy": "OnFailure",
        "restartPolicyRules": [
            { "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } },
        ],
        "resizePolicy": [{ "resourceName": "cpu", "restartPolicy": "NotRequired" }],
        "lifecycle": { "stopSignal": "SIGUSR1", "preStop": { "sleep": { "seconds": 30 } } },
        "env": [
            { "name": "A", "valueFrom":
                { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.labels['app']" } } },
            { "name": "B", "valueFrom":
                { "resourceFieldRef": { "resource": "limits.cpu", "divisor": "1m" } } },
        ],
        "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
    });
    let spec = json!({
        "os": { "name": "linux" },
        "readinessGates": [{ "conditionType": "example.com/ready" }],
        "dnsConfig": { "nameservers": ["1.1.1.1"], "searches": ["_tcp.example.com", "."] },
        "securityContext": {
            "sysctls": [{ "name": "net.ipv4.ip_local_port_range", "value": "1 2" }],
            "fsGroupChangePolicy": "OnRootMismatch",
        },
    });
    assert_eq!(errors(container, spec), Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let env = |source: Value| json!({ "env": [{ "name": "A", "valueFrom": source }] });
    let field = |path: &str| env(json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": path } }));
    let none = || json!({});
    let cases = [
        (
            field("spec.nothing"),
            none(),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \
             \"spec.nothing\": error converting fieldPath: field label not supported: spec.nothing",
        ),
        (
            field("metadata.labels"),
            none(),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \
             \"metadata.labels\": supported values: \"metadata.name\"",
        ),
        (
            env(json!({ "resourceFieldRef": { "resource": "limits.gpu" } })),
            none(),
            "resourceFieldRef.resource: Unsupported value: \"limits.gpu\"",
        ),
        (
            json!({ "restartPolicyRules": [] , "restartPolicy": "Sometimes" }),
            none(),
            "spec.containers[0].restartPolicy: Unsupported value: \"Sometimes\"",
        ),
        (
            json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 31 } } } }),
            none(),
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative \
             and less than terminationGracePeriodSeconds (30)",
        ),
        (
            json!({ "lifecycle": { "stopSignal": "SIGTERM" } }),
            none(),
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers \
             with empty `spec.os.name`",
        ),
        (
            json!({ "securityContext": { "seccompProfile": { "type": "Localhost" } } }),
            none(),
            "must be set when seccomp type is Localhost",
        ),
        (
            none(),
            json!({ "securityContext": { "sysctls": [{ "name": "Net.x", "value": "1" }] } }),
            "spec.securityContext.sysctls[0].name: Invalid value: \"Net.x\": must have at most 253",
        ),
        (
            none(),
            json!({ "hostPID": true, "shareProcessNamespace": true }),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ),
        (
            json!({ "resizePolicy":
                [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }] }),
            json!({ "restartPolicy": "Never" }),
            "must be 'NotRequired' when `restartPolicy` is 'Never'",
        ),
    ];
    for (container, spec, wanted) in cases {
        let found = errors(container, spec);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "wanted {wanted}, got {found:?}"
        );
    }
}
