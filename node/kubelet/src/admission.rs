//! Whether this node takes a pod. Pure.
//!
//! The words are those of `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/eviction` and
//! `pkg/kubelet/nodeshutdown` of Kubernetes; the order is that in which kubelet asks.

use k8s_openapi::api::core::v1::Pod;

use crate::cgroups::qos_class;
use crate::node_status::Pressure;
use crate::resources::{CPU, Demand, EPHEMERAL_STORAGE, MEMORY, pod_demand};

mod critical;
pub mod fields;
mod placement;
pub mod preemption;
pub mod room;
mod safety;

pub(crate) use critical::priority;
pub use critical::{SYSTEM_CRITICAL_PRIORITY, is_critical};
pub use placement::NodeView;
pub use room::Room;
pub use safety::Safety;

use swiftlet_model::cgroups::QosClass;

/// The reason of a pod that came while the node shuts down.
pub const NODE_SHUTDOWN: &str = "NodeShutdown";
/// The reason of a pod that came while the node is short of something.
pub const EVICTED: &str = "Evicted";
/// The taint of a node that is short of memory.
const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Why a pod was not taken; it becomes Failed with these words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`.
    pub reason: String,
    /// `status.message`, after `Pod was rejected: `.
    pub message: String,
}

/// What the node can give to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
    /// Number of pods.
    pub pods: usize,
    /// Bytes of disk for logs, layers and emptyDir.
    pub ephemeral_storage_bytes: i64,
    /// Bytes by size of huge page, named as in the API (`hugepages-2Mi`).
    pub hugepages: std::collections::BTreeMap<String, i64>,
}

impl Allocatable {
    /// How much there is of a resource; `None` for one that the node does not have.
    fn of(&self, resource: &str) -> Option<i64> {
        match resource {
            CPU => Some(self.cpu_milli),
            MEMORY => Some(self.memory_bytes),
            EPHEMERAL_STORAGE => Some(self.ephemeral_storage_bytes),
            other => self.hugepages.get(other).copied(),
        }
    }
}

/// The node as a new pod finds it.
#[derive(Clone, Copy, Debug)]
pub struct NodeState<'a> {
    /// The node's name.
    pub name: &'a str,
    /// What it can give.
    pub allocatable: &'a Allocatable,
    /// What it is short of.
    pub pressure: Pressure,
    /// It is shutting down.
    pub shutting_down: bool,
    /// Its labels and taints in the API; `None`: not known, and then not asked about.
    pub view: Option<&'a NodeView>,
    /// How safely it can run pods.
    pub safety: Safety<'a>,
}

/// What is missing of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Its name in a resource list, or `pods`.
    pub resource: String,
    /// How much more is needed.
    pub amount: i64,
}

/// What the node says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the pod.
    Admit,
    /// It would, if others made room.
    Short(Rejection, Vec<Shortage>),
    /// It does not.
    Reject(Rejection),
}

/// Decides about `pod`, beside the pods in `room`. `refused`: what of it is not served
/// ([`fields::refused`]).
pub fn admit(pod: &Pod, refused: &[String], room: &Room, node: &NodeState<'_>) -> Verdict {
    let fixed = matches_node(pod, node.name)
        .and_then(|()| safety::check(pod, node.safety))
        .and_then(|()| serves(refused))
        .and_then(|()| bears(pod, node.pressure))
        .and_then(|()| stays(node.shutting_down));
    if let Err(rejection) = fixed {
        return Verdict::Reject(rejection);
    }
    let shortages = shortages(pod, room, node.allocatable);
    let first = shortages.first().map(|(rejection, _)| rejection.clone());
    let placed = placement::check(pod, room, node);
    match (first, placed) {
        (Some(rejection), Ok(())) => {
            let all = shortages.into_iter().map(|(_, shortage)| shortage);
            Verdict::Short(rejection, all.collect())
        }
        (Some(rejection), Err(_)) | (None, Err(rejection)) => Verdict::Reject(rejection),
        (None, Ok(())) => Verdict::Admit,
    }
}

fn matches_node(pod: &Pod, node_name: &str) -> Result<(), Rejection> {
    let spec = pod.spec.as_ref();
    if spec.and_then(|spec| spec.node_name.as_deref()) != Some(node_name) {
        let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
        return Err(rejection("NodeName", message.to_owned()));
    }
    let os = spec
        .and_then(|spec| spec.os.as_ref())
        .map_or("linux", |os| os.name.as_str());
    if os != "linux" {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(rejection("PodOSNotSupported", message.to_owned()));
    }
    Ok(())
}

fn serves(refused: &[String]) -> Result<(), Rejection> {
    if refused.is_empty() {
        return Ok(());
    }
    Err(rejection(
        "UnexpectedAdmissionError",
        format!("this node does not serve: {}", refused.join(", ")),
    ))
}

/// Under pressure the node takes what it cannot do without; short of memory alone, also who has
/// asked for some, since such a pod is not the first to be evicted.
fn bears(pod: &Pod, pressure: Pressure) -> Result<(), Rejection> {
    let names: Vec<&str> = [
        (pressure.memory, "MemoryPressure"),
        (pressure.disk, "DiskPressure"),
        (pressure.pids, "PIDPressure"),
    ]
    .into_iter()
    .filter_map(|(holds, name)| holds.then_some(name))
    .collect();
    if names.is_empty() || is_critical(pod) {
        return Ok(());
    }
    if names == ["MemoryPressure"]
        && (qos_class(pod) != QosClass::BestEffort || tolerates_memory_pressure(pod))
    {
        return Ok(());
    }
    let message = format!("The node had condition: [{}]. ", names.join(" "));
    Err(rejection(EVICTED, message))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    placement::tolerates(pod, MEMORY_PRESSURE_TAINT, "", "NoSchedule")
}

fn stays(shutting_down: bool) -> Result<(), Rejection> {
    if shutting_down {
        let message = "Pod was rejected as the node is shutting down.";
        return Err(rejection(NODE_SHUTDOWN, message.to_owned()));
    }
    Ok(())
}

fn shortages(pod: &Pod, room: &Room, allocatable: &Allocatable) -> Vec<(Rejection, Shortage)> {
    let wanted = pod_demand(pod);
    let count = |pods: usize| i64::try_from(pods).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    let pods = ("pods", 1, count(room.len()), count(allocatable.pods));
    let others = in_order(&wanted).map(|(name, requested)| {
        let capacity = allocatable.of(name).unwrap_or_default();
        (name, requested, room.used(name), capacity)
    });
    for (resource, requested, used, capacity) in [pods].into_iter().chain(others) {
        // Who asks for nothing needs no room.
        let over = used.saturating_add(requested).saturating_sub(capacity);
        if requested <= 0 || over <= 0 {
            continue;
        }
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, \
             used: {used}, capacity: {capacity}"
        );
        let shortage = Shortage {
            resource: resource.to_owned(),
            amount: over,
        };
        found.push((rejection(&format!("OutOf{resource}"), message), shortage));
    }
    found
}

/// CPU, memory and disk first, as Kubernetes names them first when several are short.
fn in_order(wanted: &Demand) -> impl Iterator<Item = (&str, i64)> {
    let first = [CPU, MEMORY, EPHEMERAL_STORAGE];
    let rest = wanted
        .keys()
        .map(String::as_str)
        .filter(move |name| !first.contains(name));
    first
        .into_iter()
        .chain(rest)
        .map(|name| (name, wanted.get(name).copied().unwrap_or_default()))
}

fn rejection(reason: &str, message: String) -> Rejection {
    Rejection {
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests;
