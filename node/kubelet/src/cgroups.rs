//! QoS class, cgroup path and the numbers that go into a cgroup. Pure.
//!
//! Source of the formulas: `pkg/kubelet/cm/helpers_linux.go` and `pkg/kubelet/qos/policy.go` of
//! Kubernetes.

mod qos;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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

pub(crate) use qos::pod_level;
pub use qos::{oom_score_adj, qos_class};

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
/// How soon the cgroups above the pods are written again that could not be.
const ROOTS_RETRY: Duration = Duration::from_secs(10);

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
            let mut failed = false;
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
                    Err(error) => {
                        tracing::warn!(%error, "all pods together are not limited");
                        failed = true;
                    }
                }
            }
            changed.borrow_and_update();
            let wanted = cpu_shares(shared.keeper.room().burstable_cpu_milli());
            if shares != Some(wanted) {
                let class = QosClass::Burstable;
                match shared.doors.cgroups.class_shares(class, wanted).await {
                    Ok(()) => shares = Some(wanted),
                    Err(error) => {
                        tracing::warn!(%error, "a class keeps its old weight");
                        failed = true;
                    }
                }
            }
            tokio::select! {
                Ok(()) = changed.changed() => {}
                Ok(()) = facts.changed() => {}
                () = tokio::time::sleep(ROOTS_RETRY), if failed => {}
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
