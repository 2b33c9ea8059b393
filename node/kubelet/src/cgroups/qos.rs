//! The class of a pod, and what follows from it for the kernel's choice when memory is short. Pure.
//!
//! Source of the rules: `pkg/apis/core/v1/helper/qos` and `pkg/kubelet/qos/policy.go` of
//! Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use swiftlet_model::cgroups::QosClass;
use swiftlet_proto::pod::is_sidecar;

use crate::resources::{CPU, Demand, HUGEPAGES, MEMORY, container_requests, pod_demand, read};

/// `oom_score_adj` of guaranteed and node-critical pods.
const OOM_SCORE_GUARANTEED: i64 = -997;
/// `oom_score_adj` of best-effort pods.
const OOM_SCORE_BEST_EFFORT: i64 = 1000;
/// The class whose pods the node cannot do without.
const NODE_CRITICAL: &str = "system-node-critical";

/// `status.qosClass`: over CPU and memory of all containers, init containers among them. What the
/// pod as a whole asks for counts alone, if it asks for something.
pub fn qos_class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else {
        return QosClass::BestEffort;
    };
    let (mut any, mut guaranteed) = (false, true);
    let mut count = |resources: Option<&ResourceRequirements>, missing: &Demand| {
        let amounts = |list: Option<&BTreeMap<String, Quantity>>| {
            let mut all = read(list);
            all.retain(|_, amount| *amount > 0);
            all
        };
        let requests = amounts(resources.and_then(|all| all.requests.as_ref()));
        let limits = amounts(resources.and_then(|all| all.limits.as_ref()));
        for name in [CPU, MEMORY] {
            let limit = limits.get(name);
            // The API server sets a missing request.
            let request = requests.get(name);
            let request = request.or_else(|| limit.and(missing.get(name).or(limit)));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    };
    if let Some(whole) = pod_level(spec) {
        count(Some(whole), &container_sum(pod));
    } else {
        for container in containers(spec) {
            count(container.resources.as_ref(), &Demand::new());
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// What the pod as a whole asks for, if that is something it can ask for.
pub(crate) fn pod_level(spec: &PodSpec) -> Option<&ResourceRequirements> {
    let whole = spec.resources.as_ref()?;
    let lists = [&whole.requests, &whole.limits];
    let mut names = lists.into_iter().flatten().flat_map(BTreeMap::keys);
    let counts =
        |name: &String| [CPU, MEMORY].contains(&name.as_str()) || name.starts_with(HUGEPAGES);
    names.any(counts).then_some(whole)
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

    fn full() -> Value {
        let list = json!({"cpu": "1", "memory": "1Gi"});
        json!({"limits": list, "requests": list})
    }

    #[test]
    fn the_class_follows_requests_and_limits_of_all_containers() {
        let class = |spec| qos_class(&pod(spec));
        let one = |resources| json!({"containers": [{"name": "a", "resources": resources}]});
        assert_eq!(class(one(json!({}))), QosClass::BestEffort);
        assert_eq!(
            class(one(json!({"requests": {"cpu": "0"}}))),
            QosClass::BestEffort
        );
        assert_eq!(class(one(full())), QosClass::Guaranteed);
        assert_eq!(
            class(one(json!({"limits": {"cpu": "1"}}))),
            QosClass::Burstable
        );
        let two = json!({"containers": [
            {"name": "a", "resources": full()}, {"name": "b"},
        ]});
        assert_eq!(class(two), QosClass::Burstable);
    }

    #[test]
    fn what_the_pod_as_a_whole_asks_for_decides_alone() {
        let class = |whole: Value, container: Value| {
            qos_class(&pod(json!({
                "resources": whole,
                "containers": [{"name": "a", "resources": container}],
            })))
        };
        assert_eq!(class(full(), json!({})), QosClass::Guaranteed);
        let half = json!({"requests": {"memory": "1Gi"}});
        assert_eq!(class(half.clone(), json!({})), QosClass::Burstable);
        assert_eq!(class(half, full()), QosClass::Burstable);
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(class(limits.clone(), json!({})), QosClass::Guaranteed);
        // The missing request becomes that of the containers.
        let asks = json!({"requests": {"cpu": "100m"}});
        assert_eq!(class(limits, asks), QosClass::Burstable);
        // Disk is not asked for by pods.
        let disk = json!({"requests": {"ephemeral-storage": "1Gi"}});
        assert_eq!(class(disk, full()), QosClass::Guaranteed);
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
