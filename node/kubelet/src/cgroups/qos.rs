//! The class of a pod, and what follows from it for the kernel's choice when memory is short. Pure.
//!
//! Source of the rules: `pkg/kubelet/qos/policy.go` of Kubernetes.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use swiftlet_model::cgroups::QosClass;
use swiftlet_proto::pod::is_sidecar;
pub(crate) use swiftlet_proto::qos::pod_level;

use crate::resources::{Demand, MEMORY, container_requests, pod_demand, read};

/// `oom_score_adj` of guaranteed and node-critical pods.
const OOM_SCORE_GUARANTEED: i64 = -997;
/// `oom_score_adj` of best-effort pods.
const OOM_SCORE_BEST_EFFORT: i64 = 1000;
/// The class whose pods the node cannot do without.
const NODE_CRITICAL: &str = "system-node-critical";

/// `status.qosClass`.
pub fn qos_class(pod: &Pod) -> QosClass {
    let spec = pod.spec.as_ref();
    spec.map_or(QosClass::BestEffort, swiftlet_proto::qos::qos_class)
}

/// Which process the kernel kills first when memory is short.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity_bytes: i64) -> i64 {
    let spec = pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.priority_class_name.as_deref());
    if class == Some(NODE_CRITICAL) {
        return OOM_SCORE_GUARANTEED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => OOM_SCORE_GUARANTEED,
        QosClass::BestEffort => OOM_SCORE_BEST_EFFORT,
        QosClass::Burstable => {
            let rest = unassigned_share(pod);
            let mut request = memory_request(container);
            if is_sidecar(container) {
                // A sidecar is not killed before the containers that it serves.
                let mains = spec.into_iter().flat_map(|spec| &spec.containers);
                request = request.max(mains.map(memory_request).min().unwrap_or_default());
            }
            let request = request.saturating_add(rest);
            let share = request.saturating_mul(1000) / memory_capacity_bytes.max(1);
            // Between the guaranteed pods and the best-effort ones, never equal to either.
            (OOM_SCORE_BEST_EFFORT - share).clamp(
                OOM_SCORE_BEST_EFFORT + OOM_SCORE_GUARANTEED,
                OOM_SCORE_BEST_EFFORT - 1,
            )
        }
    }
}

/// Each container's part of the memory that the pod as a whole asks for and no container does.
fn unassigned_share(pod: &Pod) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let whole = pod_level(spec).and_then(|whole| whole.requests.as_ref());
    let Some(asked) = read(whole).get(MEMORY).copied().filter(|asked| *asked > 0) else {
        return 0;
    };
    let assigned = container_sum(pod).get(MEMORY).copied().unwrap_or_default();
    let count = i64::try_from(containers(spec).count()).unwrap_or(i64::MAX);
    asked.saturating_sub(assigned) / count.max(1)
}

/// What the containers ask for together, and nobody else.
fn container_sum(pod: &Pod) -> Demand {
    let spec = pod.spec.as_ref().map(|spec| PodSpec {
        containers: spec.containers.clone(),
        init_containers: spec.init_containers.clone(),
        ..PodSpec::default()
    });
    let mut sum = pod_demand(&Pod {
        spec,
        ..Pod::default()
    });
    sum.retain(|_, amount| *amount > 0);
    sum
}

fn memory_request(container: &Container) -> i64 {
    let asked = container_requests(container).memory_bytes;
    asked.unwrap_or_default()
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    spec.containers.iter().chain(init)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    }

    #[test]
    fn memory_that_no_container_asks_for_is_shared_out_among_them() {
        let pod = pod(json!({
            "resources": {"requests": {"memory": "600Mi"}},
            "containers": [
                {"name": "a", "resources": {"requests": {"memory": "200Mi"}}},
                {"name": "b"},
            ],
        }));
        let all = &pod.spec.as_ref().unwrap().containers;
        let score = |index: usize| oom_score_adj(&pod, &all[index], 1000 << 20);
        assert_eq!((score(0), score(1)), (600, 800));
    }

    #[test]
    fn a_sidecar_is_not_killed_before_the_containers_that_it_serves() {
        let pod = pod(json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "containers": [
                {"name": "a", "resources": {"requests": {"memory": "200Mi"}}},
                {"name": "b", "resources": {"requests": {"memory": "300Mi"}}},
            ],
        }));
        let sidecar = &pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
        assert_eq!(oom_score_adj(&pod, sidecar, 1000 << 20), 800);
    }
}
