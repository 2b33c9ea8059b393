//! What tests ask about pods, through kubectl.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::process::wait_for;

/// How long a pod may take to become what is waited for.
pub const LIMIT: Duration = Duration::from_mins(1);

/// Identity and restarts of each container: what must not change when an agent restarts.
pub type Containers = BTreeMap<String, (String, u64)>;

/// Container id and restart count of each pod's first container, by the pod's name.
pub fn containers(kubectl: &Kubectl) -> Result<Containers> {
    let pods = kubectl.json(&["get", "pods"])?;
    let pods = pods["items"].as_array().context("a list")?;
    Ok(pods
        .iter()
        .map(|pod| {
            let status = &pod["status"]["containerStatuses"][0];
            let id = status["containerID"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let restarts = status["restartCount"].as_u64().unwrap_or_default();
            (
                pod["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                (id, restarts),
            )
        })
        .collect())
}

/// The pod of that name, if it is there.
pub fn pod(kubectl: &Kubectl, name: &str) -> Option<Value> {
    kubectl.json(&["get", "pod", name]).ok()
}

/// Whether a pod's Ready condition is True.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Waits until exactly `count` pods exist and all are Ready.
pub fn wait_ready(kubectl: &Kubectl, count: usize) -> Result<()> {
    wait_for(&format!("{count} pods Ready"), LIMIT, || {
        let pods = kubectl.json(&["get", "pods"]).ok()?;
        let pods = pods["items"].as_array()?;
        (pods.len() == count && pods.iter().all(is_ready)).then_some(())
    })
}

/// Waits until no pod exists in the default namespace.
pub fn wait_gone(kubectl: &Kubectl) -> Result<()> {
    wait_for("all pods gone", LIMIT, || {
        let pods = kubectl.run(&["get", "pods", "-o", "name"]).ok()?;
        pods.is_empty().then_some(())
    })
}

/// A manifest of `count` pods that run `script` by sh.
pub fn manifest(prefix: &str, count: usize, image: &str, script: &str) -> String {
    let pod = |number| {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("{prefix}-{number}")},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main",
                    "image": image,
                    "command": ["sh", "-c", script],
                }],
            },
        })
        .to_string()
    };
    (0..count).map(pod).collect::<Vec<_>>().join("\n")
}
