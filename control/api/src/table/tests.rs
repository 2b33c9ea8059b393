//! Promises of the tables.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::strategy::arbitrary::any_object;
use crate::strategy::registry;

const NOW: &str = "2026-01-01T01:00:00Z";

fn resource(plural: &str) -> &'static Resource {
    registry()
        .iter()
        .find(|resource| resource.name.plural == plural)
        .expect("it is served")
}

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

/// The cells of one object; with `wide` all of them.
fn cells(plural: &str, object: Value, wide: bool) -> Vec<Value> {
    let table = table(
        resource(plural),
        &[object],
        json!({}),
        IncludeObject::None,
        now(),
    );
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    let shown = columns
        .iter()
        .zip(cells)
        .filter(|(column, _)| wide || column["priority"] == 0);
    shown.map(|(_, cell)| cell.clone()).collect()
}

fn meta() -> Value {
    json!({"name": "x", "creationTimestamp": "2026-01-01T00:56:50Z"})
}

/// READY, STATUS and RESTARTS of a pod.
fn summary(spec: &Value, status: &Value) -> [String; 3] {
    let pod = json!({"metadata": meta(), "spec": spec, "status": status});
    let cells = cells("pods", pod, false);
    [1, 2, 3].map(|index| cells[index].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_table_has_columns_rows_and_the_metadata_of_objects() {
    let pod = json!({"metadata": meta(), "spec": {}});
    let list_meta = json!({"resourceVersion": "7"});
    let objects = [pod.clone()];
    let made = table(
        resource("pods"),
        &objects,
        list_meta,
        IncludeObject::Metadata,
        now(),
    );
    assert_eq!(made["kind"], "Table");
    assert_eq!(made["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(made["metadata"]["resourceVersion"], "7");
    assert_eq!(
        made["columnDefinitions"][0],
        json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name must be unique within a namespace.",
        })
    );
    assert_eq!(
        made["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta()})
    );
    let whole = table(
        resource("pods"),
        &objects,
        json!({}),
        IncludeObject::Object,
        now(),
    );
    assert_eq!(whole["rows"][0]["object"], pod);
    let nothing = table(
        resource("pods"),
        &objects,
        json!({}),
        IncludeObject::None,
        now(),
    );
    assert_eq!(nothing["rows"][0]["object"], Value::Null);
    assert_eq!(IncludeObject::parse(""), Some(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("None"), Some(IncludeObject::None));
    assert_eq!(IncludeObject::parse("all"), None);
}

#[test]
fn every_row_has_as_many_cells_as_there_are_columns() {
    for resource in registry() {
        let made = table(
            resource,
            &[json!({})],
            json!({}),
            IncludeObject::None,
            now(),
        );
        let count = |value: &Value| value.as_array().map(Vec::len);
        assert_eq!(
            count(&made["rows"][0]["cells"]),
            count(&made["columnDefinitions"])
        );
    }
}

#[test]
fn a_running_pod_reads_as_on_any_cluster() {
    let pod = json!({
        "metadata": meta(),
        "spec": {"containers": [{"name": "a"}], "nodeName": "n"},
        "status": {
            "phase": "Running", "podIPs": [{"ip": "10.1.0.2"}],
            "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": NOW}}}],
        },
    });
    assert_eq!(
        cells("pods", pod, true),
        [
            "x", "1/1", "Running", "0", "3m10s", "10.1.0.2", "n", "<none>", "<none>"
        ]
        .map(Value::from)
    );
}

#[test]
fn the_status_of_a_pod_is_the_word_that_explains_it() {
    let one = json!({"containers": [{"name": "a"}]});
    let main = |state: Value| json!({"phase": "Running", "containerStatuses": [{"state": state}]});
    let cases = [
        (json!({"phase": "Pending"}), "Pending"),
        (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (
            main(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
            "CrashLoopBackOff",
        ),
        (
            main(json!({"waiting": {"reason": "ContainerCreating"}})),
            "ContainerCreating",
        ),
        (
            main(json!({"terminated": {"reason": "Completed", "exitCode": 0}})),
            "Completed",
        ),
        (
            main(json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}})),
            "OOMKilled",
        ),
        (main(json!({"terminated": {"exitCode": 3}})), "ExitCode:3"),
        (
            main(json!({"terminated": {"signal": 9, "exitCode": 137}})),
            "Signal:9",
        ),
    ];
    for (status, want) in cases {
        assert_eq!(summary(&one, &status)[1], want, "{status}");
    }
}

#[test]
fn init_containers_show_how_far_they_are() {
    let spec = json!({
        "initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}],
    });
    let init = |states: &[Value]| {
        let statuses: Vec<Value> = states.iter().map(|state| json!({"state": state})).collect();
        json!({"phase": "Pending", "initContainerStatuses": statuses})
    };
    let done = json!({"terminated": {"exitCode": 0}});
    let cases = [
        (init(&[json!({"running": {}})]), "Init:0/2"),
        (
            init(&[
                done.clone(),
                json!({"waiting": {"reason": "PodInitializing"}}),
            ]),
            "Init:1/2",
        ),
        (
            init(&[json!({"waiting": {"reason": "ErrImagePull"}})]),
            "Init:ErrImagePull",
        ),
        (
            init(&[json!({"terminated": {"exitCode": 1, "reason": "Error"}})]),
            "Init:Error",
        ),
        (
            init(&[json!({"terminated": {"exitCode": 2}})]),
            "Init:ExitCode:2",
        ),
        (
            init(&[json!({"terminated": {"exitCode": 2, "signal": 9}})]),
            "Init:Signal:9",
        ),
        (init(&[done.clone(), done]), "Pending"),
    ];
    for (status, want) in cases {
        assert_eq!(summary(&spec, &status)[1], want, "{status}");
    }
}

#[test]
fn sidecars_count_as_containers() {
    let spec = json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}],
    });
    let status = json!({
        "phase": "Running",
        "initContainerStatuses": [
            {"name": "s", "started": true, "ready": true, "state": {"running": {}}},
        ],
        "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}],
    });
    assert_eq!(summary(&spec, &status), ["2/2", "Running", "0"]);
}

#[test]
fn restarts_tell_when_the_last_one_was() {
    let spec = json!({"containers": [{"name": "a"}]});
    let status = json!({"phase": "Running", "containerStatuses": [{
        "restartCount": 3, "ready": true, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:55Z"}},
    }]});
    assert_eq!(summary(&spec, &status), ["1/1", "Running", "3 (5s ago)"]);
}

#[test]
fn a_pod_that_is_being_deleted_is_terminating() {
    let pod = |phase: &str, reason: &str| {
        let mut metadata = meta();
        metadata["deletionTimestamp"] = NOW.into();
        let status = json!({"phase": phase, "reason": reason});
        cells(
            "pods",
            json!({"metadata": metadata, "status": status}),
            false,
        )[2]
        .clone()
    };
    assert_eq!(pod("Running", ""), "Terminating");
    assert_eq!(pod("Running", "NodeLost"), "Unknown");
    assert_eq!(pod("Succeeded", ""), "Succeeded");
}

#[test]
fn nodes_read_as_on_any_cluster() {
    let node = json!({
        "metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:56:50Z",
            "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/a": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.34.0", "osImage": "Debian", "kernelVersion": "6.18"},
        },
    });
    assert_eq!(
        cells("nodes", node, true),
        [
            "x",
            "Ready,SchedulingDisabled",
            "a,worker",
            "3m10s",
            "v1.34.0",
            "10.0.0.1",
            "<none>",
            "Debian",
            "6.18",
            "<unknown>",
        ]
        .map(Value::from)
    );
    let bare = cells("nodes", json!({"metadata": meta()}), false);
    assert_eq!(
        bare,
        ["x", "Unknown", "<none>", "3m10s", ""].map(Value::from)
    );
}

#[test]
fn workloads_read_as_on_any_cluster() {
    let spec = json!({
        "replicas": 3,
        "selector": {"matchLabels": {"app": "x"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
        ]},
        "template": {"spec": {"containers": [
            {"name": "a", "image": "i"}, {"name": "b", "image": "j"},
        ]}},
    });
    let status = json!({
        "replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1,
    });
    let object = json!({"metadata": meta(), "spec": spec, "status": status});
    let wide = ["a,b", "i,j", "app=x,tier in (a,b)"].map(Value::from);
    let deployment = cells("deployments", object.clone(), true);
    assert_eq!(
        deployment[..5],
        [json!("x"), json!("2/3"), json!(3), json!(1), json!("3m10s")]
    );
    assert_eq!(deployment[5..], wide);
    let replica_set = cells("replicasets", object, true);
    assert_eq!(
        replica_set[..5],
        [json!("x"), json!(3), json!(3), json!(2), json!("3m10s")]
    );
    assert_eq!(replica_set[5..], wide);
}

#[test]
fn the_other_kinds_have_the_columns_that_people_know() {
    let with = |more: Value| {
        let mut object = json!({"metadata": meta()});
        for (key, value) in more.as_object().expect("members") {
            object[key] = value.clone();
        }
        object
    };
    let map = with(json!({"data": {"a": ""}, "binaryData": {"b": ""}}));
    assert_eq!(
        cells("configmaps", map, false),
        [json!("x"), json!(2), json!("3m10s")]
    );
    let secret = with(json!({"type": "Opaque", "data": {"a": ""}}));
    assert_eq!(
        cells("secrets", secret, false),
        [json!("x"), json!("Opaque"), json!(1), json!("3m10s")]
    );
    let account = with(json!({}));
    assert_eq!(
        cells("serviceaccounts", account, false),
        [json!("x"), json!(0), json!("3m10s")]
    );
    let lease = with(json!({"spec": {"holderIdentity": "me"}}));
    assert_eq!(
        cells("leases", lease, false),
        ["x", "me", "3m10s"].map(Value::from)
    );
    let namespace = with(json!({"status": {"phase": "Active"}}));
    assert_eq!(
        cells("namespaces", namespace, false),
        ["x", "Active", "3m10s"].map(Value::from)
    );
    let event = with(json!({
        "lastTimestamp": "2026-01-01T00:59:00Z", "type": "Normal", "reason": "Started",
        "involvedObject": {"kind": "Pod", "name": "web"}, "message": "Started container a\n",
        "source": {"component": "kubelet", "host": "n"},
    }));
    assert_eq!(
        cells("events", event.clone(), false),
        ["60s", "Normal", "Started", "pod/web", "Started container a"].map(Value::from)
    );
    assert_eq!(cells("events", event, true)[5], "kubelet, n");
}

proptest! {
    #[test]
    fn no_object_makes_a_table_panic(object in any_object()) {
        for resource in registry() {
            let objects = [object.clone()];
            let made = table(resource, &objects, json!({}), IncludeObject::None, now());
            let columns = made["columnDefinitions"].as_array().map(Vec::len);
            prop_assert_eq!(made["rows"][0]["cells"].as_array().map(Vec::len), columns);
        }
    }
}
