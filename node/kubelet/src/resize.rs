//! Pods that grow and shrink while they run. Pure; the worker carries out what is decided here.
//!
//! Three things are kept apart: what the spec asks for, what the node has promised (allocated), and
//! what the cgroups say (actual). Source of rules and words: `pkg/kubelet/allocation` and
//! `pkg/kubelet/kuberuntime` of Kubernetes, KEP-1287.

mod order;
mod shown;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::PodKey;
use swiftlet_model::sources::is_static;

use crate::admission::{Allocatable, Room};
use crate::cgroups::qos_class;
use crate::resources::{CPU, Demand, MEMORY, pod_demand, read};

pub(crate) use order::{Change, ContainerChange, PodChange, next};
pub(crate) use shown::Shown;

/// Why what is asked for is not promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// `Deferred` or `Infeasible`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Not now: others have it.
pub(crate) const DEFERRED: &str = "Deferred";
/// Never on this node.
pub(crate) const INFEASIBLE: &str = "Infeasible";

/// What is known of one pod's resources, by container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resize {
    allocated: BTreeMap<String, ResourceRequirements>,
    actual: BTreeMap<String, ResourceRequirements>,
    /// CPUs that each container was told to run on; empty for all.
    pub(crate) cpusets: BTreeMap<String, String>,
    pub(crate) pending: Option<Pending>,
    /// Why what is promised could not be given.
    pub(crate) error: Option<String>,
}

impl Resize {
    /// Of a pod that the node sees for the first time. What it had before the agent was started
    /// stands in its status; what the spec asks for beyond that is a wish like any other.
    pub(crate) fn new(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let known: BTreeMap<_, _> = status
            .into_iter()
            .flat_map(|status| {
                let mains = status.container_statuses.iter().flatten();
                mains.chain(status.init_container_statuses.iter().flatten())
            })
            .filter_map(|status| Some((status.name.as_str(), status.resources.clone()?)))
            .collect();
        let all = containers(pod).map(|one| {
            let spec = one.resources.clone().unwrap_or_default();
            // A status without numbers says nothing: it may be older than this.
            let had = known.get(one.name.as_str()).filter(|had| !is_empty(had));
            (one.name.clone(), had.cloned().unwrap_or(spec))
        });
        let allocated: BTreeMap<_, _> = all.collect();
        Self {
            actual: allocated.clone(),
            allocated,
            ..Self::default()
        }
    }

    /// Whether the spec asks for something else than what is promised.
    pub(crate) fn is_wanted(&self, pod: &Pod) -> bool {
        containers(pod).any(|one| {
            let wanted = one.resources.clone().unwrap_or_default();
            let has = self.allocated.get(&one.name);
            has.is_some_and(|has| !is_same(has, &wanted))
        })
    }

    /// Promises what the spec asks for.
    pub(crate) fn allocate(&mut self, pod: &Pod) {
        self.pending = None;
        for one in containers(pod) {
            let wanted = one.resources.clone().unwrap_or_default();
            self.allocated.insert(one.name.clone(), wanted);
        }
    }

    /// A container is being made with what is promised, on these CPUs.
    pub(crate) fn launched(&mut self, name: &str, cpuset: String) {
        self.cpusets.insert(name.to_owned(), cpuset);
        if let Some(allocated) = self.allocated.get(name) {
            self.actual.insert(name.to_owned(), allocated.clone());
        }
    }

    /// The pod as it is promised to be.
    pub(crate) fn allocated_pod(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        with_resources(pod, &self.allocated)
    }

    /// The pod as its cgroups have it.
    pub(crate) fn actual_pod(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        with_resources(pod, &self.actual)
    }

    /// Whether everything that is promised is given.
    pub(crate) fn is_done(&self) -> bool {
        let mut all = self.allocated.iter();
        all.all(|(name, wanted)| {
            self.actual
                .get(name)
                .is_some_and(|has| is_same(has, wanted))
        })
    }

    /// Whether a container must be started anew for what has changed (`resizePolicy`).
    pub(crate) fn needs_restart(&self, container: &Container) -> bool {
        let (Some(has), Some(wanted)) = (
            self.actual.get(&container.name),
            self.allocated.get(&container.name),
        ) else {
            return false;
        };
        let policies = container.resize_policy.iter().flatten();
        policies.into_iter().any(|policy| {
            policy.restart_policy == "RestartContainer"
                && amounts(has, &policy.resource_name) != amounts(wanted, &policy.resource_name)
        })
    }
}

/// Whether the node can promise what `pod` asks for in the place of what it has.
pub(crate) fn decide(
    pod: &Pod,
    room: &Room,
    allocatable: &Allocatable,
    static_cpus: bool,
) -> Result<(), Pending> {
    let infeasible = |message: String| Pending {
        reason: INFEASIBLE,
        message,
    };
    if is_static(pod) {
        let message = "In-place resize of static-pods is not supported";
        return Err(infeasible(message.to_owned()));
    }
    if static_cpus && qos_class(pod) == QosClass::Guaranteed {
        let message =
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";
        return Err(infeasible(message.to_owned()));
    }
    let wanted = pod_demand(pod);
    let uid = PodKey::of(pod).uid;
    let own = room.demand(&uid).cloned().unwrap_or_default();
    let of = |all: &Demand, name: &str| all.get(name).copied().unwrap_or_default();
    let all = [
        (MEMORY, allocatable.memory_bytes),
        (CPU, allocatable.cpu_milli),
    ];
    for (name, capacity) in all {
        let requested = of(&wanted, name);
        if requested > capacity {
            return Err(infeasible(format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, \
                 capacity: {capacity}"
            )));
        }
    }
    for (name, capacity) in all.into_iter().rev() {
        let requested = of(&wanted, name);
        let used = room.used(name) - of(&own, name);
        // Who shrinks is never refused, even on a node that has promised too much.
        let grows = requested > of(&own, name);
        if grows && used.saturating_add(requested) > capacity {
            return Err(Pending {
                reason: DEFERRED,
                message: format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, \
                     used: {used}, capacity: {capacity}"
                ),
            });
        }
    }
    Ok(())
}

/// Containers that can be resized.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    })
}

fn with_resources(pod: &Arc<Pod>, all: &BTreeMap<String, ResourceRequirements>) -> Arc<Pod> {
    let same = containers(pod).all(|one| {
        let own = one.resources.clone().unwrap_or_default();
        all.get(&one.name).is_none_or(|other| is_same(other, &own))
    });
    if same {
        return Arc::clone(pod);
    }
    let mut pod = Pod::clone(pod);
    if let Some(spec) = &mut pod.spec {
        let init = spec.init_containers.iter_mut().flatten();
        for one in spec.containers.iter_mut().chain(init) {
            if let Some(resources) = all.get(&one.name) {
                one.resources = Some(resources.clone());
            }
        }
    }
    Arc::new(pod)
}

/// Whether CPU and memory are the same, however they are written.
fn is_same(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    [CPU, MEMORY]
        .iter()
        .all(|name| amounts(one, name) == amounts(other, name))
}

fn is_empty(one: &ResourceRequirements) -> bool {
    [CPU, MEMORY]
        .iter()
        .all(|name| amounts(one, name) == (None, None))
}

fn amounts(all: &ResourceRequirements, name: &str) -> (Option<i64>, Option<i64>) {
    let of = |list: &Option<_>| read(list.as_ref()).get(name).copied();
    (of(&all.requests), of(&all.limits))
}

#[cfg(test)]
mod tests;
