//! `/pods` and `/runningpods`: what the node has been told to run, and what its runtime holds.

use http::StatusCode;
use serde_json::{Value, json};
use swiftlet_model::pod_board::{PodBoard, Posted};
use swiftlet_model::runtime::{ContainerState, Runtime, RuntimePod};

use crate::answer::{Answer, object, text};

/// The pods of this node with their newest statuses.
pub(crate) fn posted(board: &PodBoard) -> Answer {
    let items: Vec<Value> = board.all().iter().map(shown).collect();
    object(StatusCode::OK, &list(items))
}

fn shown(posted: &Posted) -> Value {
    let mut pod = (*posted.pod).clone();
    pod.status = Some((*posted.status).clone());
    serde_json::to_value(&pod).unwrap_or_default()
}

/// The pods of which the runtime has running containers, made of what it says of them.
pub(crate) async fn running(runtime: &dyn Runtime) -> Answer {
    match runtime.list_pods().await {
        Ok(pods) => object(
            StatusCode::OK,
            &list(pods.iter().filter_map(of_runtime).collect()),
        ),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn of_runtime(pod: &RuntimePod) -> Option<Value> {
    let running = pod.containers.iter();
    let running = running.filter(|one| one.state == ContainerState::Running);
    let containers: Vec<Value> = running
        .map(|one| json!({"name": one.name.as_str(), "image": one.image, "resources": {}}))
        .collect();
    let key = &pod.pod;
    (!containers.is_empty()).then(|| {
        json!({
            "metadata": {
                "name": key.name, "namespace": key.namespace, "uid": key.uid.as_str(),
            },
            "spec": {"containers": containers},
            "status": {},
        })
    })
}

fn list(items: Vec<Value>) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}
