//! The calls that change limits of what runs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::PodUid;
use swiftlet_model::runtime::LinuxResources;

use crate::cgroups::pod_resources;
use crate::kuberuntime::execute::Answer;
use crate::resize::ContainerChange;
use crate::shared::Shared;

/// What the pod's cgroup says on this node.
pub(crate) fn pod_cgroup(shared: &Shared, pod: &Pod) -> LinuxResources {
    let hugepages = shared.node.borrow().hugepages.clone();
    pod_resources(pod, &hugepages, shared.resources.pod_pids_max)
}

/// Writes the pod's own limits.
pub(crate) async fn pod_limits(
    shared: Arc<Shared>,
    uid: PodUid,
    qos: QosClass,
    limits: LinuxResources,
) -> Answer {
    let written = shared.doors.cgroups.ensure_pod(&uid, qos, &limits).await;
    Answer::Limited(written.map(|_| limits).map_err(|error| error.to_string()))
}

/// Changes the limits of a container that runs. Its memory is not cut below what it uses: the
/// kernel would kill it for that.
pub(crate) async fn container_limits(
    shared: Arc<Shared>,
    uid: PodUid,
    change: ContainerChange,
) -> Answer {
    let (has, wants) = (&change.has, &change.wants);
    let least = wants.memory_limit_bytes;
    let shrinks = least > 0 && (has.memory_limit_bytes == 0 || least < has.memory_limit_bytes);
    if shrinks {
        let all = shared.doors.stats.container_memory(&uid).await;
        let used = all
            .ok()
            .and_then(|all| all.get(change.id.as_str()).copied());
        if let Some(used) = used.filter(|used| *used > least.unsigned_abs()) {
            return Answer::Limited(Err(format!(
                "attempting to set container memory limit ({least}) below current usage ({used})"
            )));
        }
    }
    let runtime = &shared.doors.runtime;
    let changed = runtime.update_resources(&change.id, wants).await;
    Answer::Limited(
        changed
            .map(|()| change.wants)
            .map_err(|error| error.to_string()),
    )
}
