use serde_json::{Value, json};
use swiftlet_client::Object;

use super::*;

fn set(replicas: i32) -> ReplicaSet {
    serde_json::from_value(
        json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {}}}),
    )
    .unwrap()
}

/// A running, ready pod on a node, but for what `change` says.
fn pod(name: &str, change: &Value) -> Arc<Pod> {
    let text = |field: &str, usual: &str| change[field].as_str().unwrap_or(usual).to_owned();
    let cost = text("cost", "0");
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "creationTimestamp": text("created", "2026-01-01T00:00:00Z"),
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost},
            },
            "spec": {"containers": [], "nodeName": text("node", name)},
            "status": {
                "phase": text("phase", "Running"),
                "conditions": [{
                    "type": "Ready",
                    "status": text("ready", "True"),
                    "lastTransitionTime": text("since", "2026-01-01T00:00:10Z"),
                }],
            },
        }))
        .unwrap(),
    )
}

#[test]
fn the_least_missed_pods_go_first() {
    // In the order in which they shall go.
    let ranked = [
        pod("unassigned", &json!({"node": ""})),
        pod("pending", &json!({"phase": "Pending"})),
        pod("unknown", &json!({"phase": "Unknown"})),
        pod("not-ready", &json!({"ready": "False"})),
        pod("cheap", &json!({"cost": "-1"})),
        pod("crowded-1", &json!({"node": "crowded"})),
        pod("crowded-2", &json!({"node": "crowded"})),
        pod("ready-late", &json!({"since": "2026-01-02T00:00:00Z"})),
        pod("young", &json!({"created": "2026-01-01T00:00:05Z"})),
        pod("plain", &json!({})),
        pod("dear", &json!({"cost": "1"})),
    ];
    let expected: Vec<_> = ranked.iter().map(|pod| pod.name()).collect();
    let mut shuffled = ranked.to_vec();
    shuffled.reverse();
    shuffled.swap(1, 6);
    let Plan::Delete(deleted) = plan(&set(0), &shuffled) else {
        panic!("nothing to delete")
    };
    let names: Vec<_> = deleted.iter().map(|pod| pod.name()).collect();
    assert_eq!(names, expected);
    let Plan::Delete(deleted) = plan(&set(10), &shuffled) else {
        panic!("nothing to delete")
    };
    assert_eq!(deleted[0].name(), "unassigned");
}

#[test]
fn a_pass_creates_no_more_than_a_burst() {
    assert_eq!(plan(&set(2), &[]), Plan::Create(2));
    assert_eq!(plan(&set(10_000), &[]), Plan::Create(BURST_MAX));
    assert_eq!(plan(&set(1), &[pod("a", &json!({}))]), Plan::Nothing);
}
