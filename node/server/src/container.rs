//! Which container of a pod is meant, by the pod's status. Pure.
//!
//! Rules and words: `validateContainerLogStatus` in `pkg/kubelet/kubelet_pods.go` of Kubernetes.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use swiftlet_model::ids::ContainerId;

/// Whether the pod's specification has a container of that name.
pub(crate) fn is_in_pod(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let mut plain = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    plain.any(|one| one.name == name) || ephemeral.any(|one| one.name == name)
}

/// The container whose log is meant, or why there is none.
pub(crate) fn with_log(
    status: &PodStatus,
    pod: &str,
    name: &str,
    previous: bool,
) -> Result<ContainerId, String> {
    let Some(container) = find(status, name) else {
        return Err(format!(
            "container {name:?} in pod {pod:?} is not available"
        ));
    };
    let last = container.last_state.as_ref();
    let last = last.and_then(|state| state.terminated.as_ref());
    let last = last.map(|ended| ended.container_id.as_deref().unwrap_or_default());
    if previous {
        return last.and_then(id).ok_or_else(|| {
            format!("previous terminated container {name:?} in pod {pod:?} not found")
        });
    }
    let state = container.state.clone().unwrap_or_default();
    if state.running.is_some() {
        let missing = || format!("container {name:?} in pod {pod:?} is not available");
        return container
            .container_id
            .as_deref()
            .and_then(id)
            .ok_or_else(missing);
    }
    if state.terminated.is_some() || last.is_some() {
        // One that could not be started has no id; the one before it has.
        let ended = state.terminated.and_then(|ended| ended.container_id);
        return ended
            .as_deref()
            .and_then(id)
            .or_else(|| last.and_then(id))
            .ok_or_else(|| format!("container {name:?} in pod {pod:?} is terminated"));
    }
    let why = match state.waiting {
        None => {
            return Err(format!(
                "container {name:?} in pod {pod:?} is waiting to start - no logs yet"
            ));
        }
        Some(waiting) => match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull" => "image can't be pulled".to_owned(),
            "ImagePullBackOff" => "trying and failing to pull image".to_owned(),
            reason => reason.to_owned(),
        },
    };
    Err(format!(
        "container {name:?} in pod {pod:?} is waiting to start: {why}"
    ))
}

/// The container that runs under that name.
pub(crate) fn running(status: &PodStatus, name: &str) -> Option<ContainerId> {
    let container = find(status, name)?;
    container.state.as_ref()?.running.as_ref()?;
    container.container_id.as_deref().and_then(id)
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let plain = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    plain
        .chain(init)
        .chain(ephemeral)
        .find(|one| one.name == name)
}

/// The runtime's id: the API puts the runtime's name before it.
fn id(text: &str) -> Option<ContainerId> {
    let id = text.split_once("://").map_or(text, |(_, id)| id);
    (!id.is_empty()).then(|| ContainerId::from(id))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(state: Value, last: Value, previous: bool) -> Result<String, String> {
        let status = json!({"containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "containerID": "containerd://now", "state": state, "lastState": last,
        }]});
        let status: PodStatus = serde_json::from_value(status).unwrap();
        with_log(&status, "web", "main", previous).map(|id| id.to_string())
    }

    fn ended(id: &str) -> Value {
        json!({"terminated": {"exitCode": 1, "containerID": id}})
    }

    #[test]
    fn the_log_is_that_of_the_container_that_runs_or_ran_last() {
        let running = json!({"running": {}});
        assert_eq!(chosen(running.clone(), json!({}), false).unwrap(), "now");
        let (now, before) = (ended("containerd://now"), ended("containerd://before"));
        assert_eq!(chosen(now, json!({}), false).unwrap(), "now");
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(chosen(waiting, before.clone(), false).unwrap(), "before");
        assert_eq!(chosen(ended(""), before.clone(), false).unwrap(), "before");
        assert_eq!(chosen(running, before, true).unwrap(), "before");
    }

    #[test]
    fn why_there_is_no_log_is_said_in_the_kubelets_words() {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let words = |state, previous| chosen(state, json!({}), previous).unwrap_err();
        assert_eq!(
            words(waiting("ContainerCreating"), false),
            "container \"main\" in pod \"web\" is waiting to start: ContainerCreating"
        );
        assert_eq!(
            words(waiting("ImagePullBackOff"), false),
            "container \"main\" in pod \"web\" is waiting to start: trying and failing to pull image"
        );
        assert_eq!(
            words(json!({"running": {}}), true),
            "previous terminated container \"main\" in pod \"web\" not found"
        );
        let unknown = with_log(&PodStatus::default(), "web", "main", false).unwrap_err();
        assert_eq!(
            unknown,
            "container \"main\" in pod \"web\" is not available"
        );
    }
}
