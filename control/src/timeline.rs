//! The control plane's part of each pod's timeline, as log records with target
//! `swiftlet::timeline`.
//!
//! A client like any other: it watches pods and says when a state was stored for the first time. It
//! runs only when someone listens, because it decodes each pod that changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::Value;
use swiftlet_client::api::{Api, RawEvent, Selection, WatchKind, resources};

/// Whether anyone listens.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(target: "swiftlet::timeline", tracing::Level::DEBUG)
}

/// Pause before a watch that ended is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// Watches for ever. What changes while no watch is open is not told.
pub(crate) async fn run(api: Arc<dyn Api>) {
    let selection = Selection::all(resources::PODS);
    let mut reached = HashMap::new();
    loop {
        if let Ok(list) = api.list(&selection).await
            && let Ok(mut changes) = api.watch(&selection, list.resource_version)
        {
            while let Some(Ok(event)) = changes.next().await {
                record(&event, &mut reached);
            }
        }
        tokio::time::sleep(REOPEN_PAUSE).await;
    }
}

/// The steps of a pod, in order; a pod may skip some in one change.
const STEPS: [&str; 3] = ["stored", "scheduled", "running_stored"];

fn record(event: &RawEvent, reached: &mut HashMap<String, usize>) {
    let Ok(pod) = serde_json::from_slice::<Value>(&event.object) else {
        return;
    };
    let uid = pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if event.kind == WatchKind::Deleted {
        reached.remove(&uid);
        return;
    }
    let now = steps_reached(&pod);
    let before = reached.insert(uid.clone(), now).unwrap_or(0);
    let name = format!(
        "{}/{}",
        pod["metadata"]["namespace"].as_str().unwrap_or_default(),
        pod["metadata"]["name"].as_str().unwrap_or_default()
    );
    for phase in &STEPS[before.min(now)..now] {
        tracing::debug!(target: "swiftlet::timeline", pod = name, uid, phase, at_us = now_us());
    }
}

/// How many of [`STEPS`] the pod has behind it.
fn steps_reached(pod: &Value) -> usize {
    let is_ready = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if pod["status"]["phase"] == "Running" && is_ready {
        3
    } else if pod["spec"]["nodeName"].is_string() {
        2
    } else {
        1
    }
}

fn now_us() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::steps_reached;

    #[test]
    fn a_pod_passes_its_steps_in_order() {
        let mut pod = json!({"spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(steps_reached(&pod), 1);
        pod["spec"]["nodeName"] = json!("worker-1");
        assert_eq!(steps_reached(&pod), 2);
        pod["status"] =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
        assert_eq!(steps_reached(&pod), 2);
        pod["status"]["conditions"][0]["status"] = json!("True");
        assert_eq!(steps_reached(&pod), 3);
    }
}
