//! QoS class, cgroup path and the numbers that go into a cgroup. Pure.
//!
//! Source of the formulas: `pkg/kubelet/cm/helpers_linux.go` and `pkg/kubelet/qos/policy.go` of
//! Kubernetes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::PodUid;
use swiftlet_model::runtime::LinuxResources;
use tokio_util::sync::CancellationToken;

use crate::node_status::NodeFacts;
use crate::resource_options::ResourceOptions;
use crate::resources::{
    HUGEPAGES, container_limits, container_requests, pod_limit_demand, pod_limits, pod_requests,
};
use crate::shared::Shared;

/// Least and most weight that cgroup v1 takes.
const CPU_SHARES_MIN: i64 = 2;
/// See [`CPU_SHARES_MIN`].
const CPU_SHARES_MAX: i64 = 262_144;
/// Weight of one CPU.
const CPU_SHARES_PER_CPU: i64 = 1024;
/// The period of a CPU quota, in microseconds.
const CPU_PERIOD_US: i64 = 100_000;
/// The kernel refuses a smaller quota, in microseconds.
const CPU_QUOTA_US_MIN: i64 = 1000;
/// `oom_score_adj` of guaranteed and node-critical pods.
const OOM_SCORE_GUARANTEED: i64 = -997;
/// `oom_score_adj` of best-effort pods.
const OOM_SCORE_BEST_EFFORT: i64 = 1000;
/// The class whose pods the node cannot do without.
const NODE_CRITICAL: &str = "system-node-critical";

/// `status.qosClass`: over CPU and memory of all containers, init containers among them.
pub fn qos_class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else {
        return QosClass::BestEffort;
    };
    let mut guaranteed = true;
    let mut any = false;
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        let requests = container_requests(container);
        let limits = container_limits(container);
        let positive = |amount: Option<i64>| amount.filter(|amount| *amount > 0);
        let pairs = [
            (positive(requests.cpu_milli), positive(limits.cpu_milli)),
            (
                positive(requests.memory_bytes),
                positive(limits.memory_bytes),
            ),
        ];
        for (request, limit) in pairs {
            any |= request.is_some() || limit.is_some();
            // The API server sets a missing request to the limit.
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// The pod's cgroup as the container runtime is told of it.
pub fn cgroup_path(pod: &PodUid, qos: QosClass) -> String {
    match qos {
        QosClass::Guaranteed => format!("/kubepods/pod{pod}"),
        QosClass::Burstable => format!("/kubepods/burstable/pod{pod}"),
        QosClass::BestEffort => format!("/kubepods/besteffort/pod{pod}"),
    }
}

/// What the pod's own cgroup says, of a node with these sizes of huge pages and this
/// `podPidsLimit`.
pub fn pod_resources(
    pod: &Pod,
    hugepages: &BTreeMap<String, i64>,
    pids_max: Option<i64>,
) -> LinuxResources {
    let requests = pod_requests(pod);
    let limits = pod_limits(pod);
    let demand = pod_limit_demand(pod);
    // A size that the pod does not ask for is one of which it may have none.
    let huge = hugepages.keys().filter_map(|name| {
        let bytes = demand.get(name).copied().unwrap_or_default();
        let bytes = u64::try_from(bytes).unwrap_or_default();
        Some((kernel_size(name.strip_prefix(HUGEPAGES)?)?, bytes))
    });
    LinuxResources {
        cpu_shares: cpu_shares(requests.cpu_milli.unwrap_or_default()),
        cpu_quota_us: cpu_quota_us(limits.cpu_milli.unwrap_or_default()),
        cpu_period_us: CPU_PERIOD_US,
        memory_limit_bytes: limits.memory_bytes.unwrap_or_default(),
        hugepage_limits: huge.collect(),
        pids_limit: pids_max.unwrap_or_default(),
        ..LinuxResources::default()
    }
}

/// `2Mi` as the kernel's files name it: `2MB`.
fn kernel_size(size: &str) -> Option<String> {
    let (number, suffix) = size.split_at(size.find(|letter: char| !letter.is_ascii_digit())?);
    let suffix = match suffix {
        "Ki" => "KB",
        "Mi" => "MB",
        "Gi" => "GB",
        _ => return None,
    };
    Some(format!("{number}{suffix}"))
}

/// What all pods together are limited to, if they are: what is allocatable, and what hard eviction
/// keeps free on top, so that pods are evicted before the kernel kills.
pub fn all_pods_resources(facts: &NodeFacts, options: &ResourceOptions) -> LinuxResources {
    let allocatable = facts.allocatable();
    let spare = options.eviction.reserved(&facts.capacity).memory_bytes;
    let memory = allocatable.memory_bytes.saturating_add(spare);
    LinuxResources {
        cpu_shares: cpu_shares(allocatable.cpu_milli),
        memory_limit_bytes: memory.min(facts.capacity.memory_bytes),
        ..LinuxResources::default()
    }
}

/// Keeps the cgroups above those of single pods up to date until `shutdown`.
pub(crate) async fn keep_roots(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut changed = shared.keeper.changed();
    let mut facts = shared.node.clone();
    let keeping = async {
        let (mut root, mut shares) = (None, None);
        loop {
            let wanted = {
                let facts = facts.borrow_and_update();
                let enforced = shared.resources.enforce_pods;
                enforced.then(|| all_pods_resources(&facts, &shared.resources))
            };
            if root != wanted
                && let Some(limits) = &wanted
            {
                match shared.doors.cgroups.limit_all_pods(limits).await {
                    Ok(()) => root = wanted,
                    Err(error) => tracing::warn!(%error, "all pods together are not limited"),
                }
            }
            changed.borrow_and_update();
            let wanted = cpu_shares(shared.keeper.room().burstable_cpu_milli());
            if shares != Some(wanted) {
                let class = QosClass::Burstable;
                match shared.doors.cgroups.class_shares(class, wanted).await {
                    Ok(()) => shares = Some(wanted),
                    Err(error) => tracing::warn!(%error, "a class keeps its old weight"),
                }
            }
            tokio::select! {
                Ok(()) = changed.changed() => {}
                Ok(()) = facts.changed() => {}
            }
            // All that comes with it is written together.
            tokio::time::sleep(shared.resources.class_shares_delay).await;
        }
    };
    shutdown.run_until_cancelled(keeping).await;
}

/// What a container's cgroup says.
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    memory_capacity_bytes: i64,
) -> LinuxResources {
    let requests = container_requests(container);
    let limits = container_limits(container);
    let weight = requests.cpu_milli.or(limits.cpu_milli).unwrap_or_default();
    LinuxResources {
        cpu_shares: cpu_shares(weight),
        cpu_quota_us: cpu_quota_us(limits.cpu_milli.unwrap_or_default()),
        cpu_period_us: CPU_PERIOD_US,
        memory_limit_bytes: limits.memory_bytes.unwrap_or_default(),
        oom_score_adj: oom_score_adj(pod, container, memory_capacity_bytes),
        ..LinuxResources::default()
    }
}

/// Relative weight of `cpu_milli`.
pub fn cpu_shares(cpu_milli: i64) -> i64 {
    let shares = cpu_milli.saturating_mul(CPU_SHARES_PER_CPU) / 1000;
    shares.clamp(CPU_SHARES_MIN, CPU_SHARES_MAX)
}

/// Microseconds of CPU per period; 0 for no limit. It is written only if a limit is set: a quota
/// throttles even on an idle machine.
pub fn cpu_quota_us(cpu_milli: i64) -> i64 {
    if cpu_milli <= 0 {
        return 0;
    }
    (cpu_milli.saturating_mul(CPU_PERIOD_US) / 1000).max(CPU_QUOTA_US_MIN)
}

/// Which process the kernel kills first when memory is short.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity_bytes: i64) -> i64 {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref());
    if class == Some(NODE_CRITICAL) {
        return OOM_SCORE_GUARANTEED;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => OOM_SCORE_GUARANTEED,
        QosClass::BestEffort => OOM_SCORE_BEST_EFFORT,
        QosClass::Burstable => {
            let request = container_requests(container)
                .memory_bytes
                .unwrap_or_default();
            let share = request.saturating_mul(1000) / memory_capacity_bytes.max(1);
            // Between the guaranteed pods and the best-effort ones, never equal to either.
            (OOM_SCORE_BEST_EFFORT - share).clamp(
                OOM_SCORE_BEST_EFFORT + OOM_SCORE_GUARANTEED,
                OOM_SCORE_BEST_EFFORT - 1,
            )
        }
    }
}
