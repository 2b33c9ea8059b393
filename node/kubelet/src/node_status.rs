//! The Node object. Pure; [`heartbeat`] keeps it and the lease up to date.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_model::runtime::{RuntimeStatus, RuntimeVersion};

use crate::admission::Allocatable;
use crate::cpu_manager::Cpu;
use crate::status::containers::api_time;

pub(crate) mod heartbeat;

/// The version that the node reports.
pub const KUBELET_VERSION: &str = "v1.34.0-swiftlet";
/// Says whether starts and ends of containers come from the kernel, at once.
pub const KERNEL_EVENTS_CONDITION: &str = "LifecycleEventsFromKernel";

/// What a node is and how it is, as the program around the kubelet finds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its host name.
    pub hostname: String,
    /// Its addresses, the first one primary.
    pub internal_ips: Vec<String>,
    /// Ranges of its pods' addresses, the first one primary; it registers with them.
    pub pod_cidrs: Vec<String>,
    /// All that it has.
    pub capacity: Amount,
    /// What pods must leave alone.
    pub reserved: Amount,
    /// Most pods at the same time.
    pub pods_max: usize,
    /// The machine and its software.
    pub system: SystemFacts,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Taints that it registers with (`registerWithTaints`).
    pub taints: Vec<Taint>,
    /// Bytes of each size of huge page, named as in the API (`hugepages-2Mi`).
    pub hugepages: BTreeMap<String, i64>,
    /// Its CPUs; empty if their layout is not known.
    pub cpus: Vec<Cpu>,
    /// What it is short of.
    pub pressure: Pressure,
    /// It is being switched off.
    pub shutting_down: bool,
    /// The node's `resolv.conf`; `None` if its pods shall use none.
    pub resolv_conf: Option<String>,
    /// Whether the kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// Whether the kernel reports starts and ends, and why not; `None`: not known yet.
    pub kernel_events: Option<Result<(), String>>,
    /// Where the kubelet's own server listens.
    pub kubelet_port: Option<u16>,
}

/// An amount of what pods use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Disk for logs, layers and emptyDir, in bytes.
    pub ephemeral_storage_bytes: i64,
}

/// The machine and its software.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemFacts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// From the firmware, or the machine id.
    pub system_uuid: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub os_image: String,
    /// `amd64`, `arm64`: Go's names.
    pub architecture: String,
}

/// What a node is short of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk.
    pub disk: bool,
    /// Process ids.
    pub pids: bool,
}

/// What the runtime says of itself; the errors are what its door answered.
#[derive(Clone, Debug)]
pub struct RuntimeHealth {
    /// Name and version.
    pub version: Option<RuntimeVersion>,
    /// Readiness.
    pub status: Result<RuntimeStatus, String>,
}

impl NodeFacts {
    /// What pods may ask for.
    pub fn allocatable(&self) -> Allocatable {
        let rest = |all: i64, reserved: i64| all.saturating_sub(reserved).max(0);
        Allocatable {
            cpu_milli: rest(self.capacity.cpu_milli, self.reserved.cpu_milli),
            memory_bytes: rest(self.capacity.memory_bytes, self.reserved.memory_bytes)
                .saturating_sub(self.hugepages.values().sum())
                .max(0),
            pods: self.pods_max,
            ephemeral_storage_bytes: rest(
                self.capacity.ephemeral_storage_bytes,
                self.reserved.ephemeral_storage_bytes,
            ),
            hugepages: self.hugepages.clone(),
        }
    }
}

/// The Node object. `previous` is the one made before: transition times come from it.
pub fn generate(
    name: &str,
    facts: &NodeFacts,
    health: &RuntimeHealth,
    previous: Option<&Node>,
    now: Timestamp,
) -> Node {
    let allocatable = facts.allocatable();
    let left = Amount {
        cpu_milli: allocatable.cpu_milli,
        memory_bytes: allocatable.memory_bytes,
        ephemeral_storage_bytes: allocatable.ephemeral_storage_bytes,
    };
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels(name, facts)),
            ..ObjectMeta::default()
        },
        spec: specification(facts),
        status: Some(NodeStatus {
            addresses: Some(addresses(facts)),
            capacity: Some(resources(&facts.capacity, facts)),
            allocatable: Some(resources(&left, facts)),
            conditions: Some(conditions(facts, health, previous, now)),
            daemon_endpoints: facts.kubelet_port.map(|port| NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint {
                    port: i32::from(port),
                }),
            }),
            node_info: Some(node_info(facts, health)),
            ..NodeStatus::default()
        }),
    }
}

/// Of the specification, the agent decides the taints and the ranges of its pods' addresses, and
/// both at its first registration alone.
fn specification(facts: &NodeFacts) -> Option<NodeSpec> {
    let some = |is_empty: bool| (!is_empty).then_some(());
    let spec = NodeSpec {
        taints: some(facts.taints.is_empty()).map(|()| facts.taints.clone()),
        pod_cidr: facts.pod_cidrs.first().cloned(),
        pod_cidrs: some(facts.pod_cidrs.is_empty()).map(|()| facts.pod_cidrs.clone()),
        ..NodeSpec::default()
    };
    (spec != NodeSpec::default()).then_some(spec)
}

/// Whether the node says that it is ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Whether two objects differ in more than their heartbeat.
pub fn differs(left: &Node, right: &Node) -> bool {
    let still = |node: &Node| {
        let mut node = node.clone();
        let status = node.status.iter_mut();
        for condition in status.flat_map(|status| status.conditions.iter_mut().flatten()) {
            condition.last_heartbeat_time = None;
        }
        node
    };
    still(left) != still(right)
}

fn labels(name: &str, facts: &NodeFacts) -> BTreeMap<String, String> {
    let arch = &facts.system.architecture;
    let mut all = facts.labels.clone();
    for (label, value) in [
        (
            "kubernetes.io/hostname",
            if facts.hostname.is_empty() {
                name
            } else {
                &facts.hostname
            },
        ),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ] {
        all.insert(label.to_owned(), value.to_owned());
    }
    all
}

fn addresses(facts: &NodeFacts) -> Vec<NodeAddress> {
    let address = |type_: &str, address: &str| NodeAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    };
    let mut all: Vec<_> = facts
        .internal_ips
        .iter()
        .map(|ip| address("InternalIP", ip))
        .collect();
    all.push(address("Hostname", &facts.hostname));
    all
}

fn resources(amount: &Amount, facts: &NodeFacts) -> BTreeMap<String, Quantity> {
    let cpu = match amount.cpu_milli % 1000 {
        0 => (amount.cpu_milli / 1000).to_string(),
        _ => format!("{}m", amount.cpu_milli),
    };
    let bytes = |bytes: i64| match bytes % 1024 {
        0 => format!("{}Ki", bytes / 1024),
        _ => bytes.to_string(),
    };
    let mut all: BTreeMap<_, _> = [
        ("cpu", cpu),
        ("memory", bytes(amount.memory_bytes)),
        ("ephemeral-storage", bytes(amount.ephemeral_storage_bytes)),
        ("pods", facts.pods_max.to_string()),
    ]
    .map(|(name, quantity)| (name.to_owned(), Quantity(quantity)))
    .into();
    let huge = facts.hugepages.iter();
    all.extend(huge.map(|(name, amount)| (name.clone(), Quantity(bytes(*amount)))));
    all
}

fn node_info(facts: &NodeFacts, health: &RuntimeHealth) -> NodeSystemInfo {
    let system = facts.system.clone();
    let version = health.version.as_ref();
    NodeSystemInfo {
        machine_id: system.machine_id,
        system_uuid: system.system_uuid,
        boot_id: system.boot_id,
        kernel_version: system.kernel_version,
        os_image: system.os_image,
        architecture: system.architecture,
        operating_system: "linux".to_owned(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        // No kube-proxy runs here; Kubernetes has stopped filling this field as well.
        kube_proxy_version: String::new(),
        container_runtime_version: version
            .map(|version| format!("{}://{}", version.name, version.version))
            .unwrap_or_default(),
        swap: None,
    }
}

fn conditions(
    facts: &NodeFacts,
    health: &RuntimeHealth,
    previous: Option<&Node>,
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut all = pressures(facts.pressure).to_vec();
    let why_not = shuts_down(facts).or_else(|| why_not_ready(health));
    all.push(match why_not {
        None => Verdict::new(
            "Ready",
            true,
            "KubeletReady",
            "kubelet is posting ready status",
        ),
        Some(why) => Verdict::new("Ready", false, "KubeletNotReady", &why),
    });
    let attached = "starts and ends of containers are reported by the kernel";
    all.extend(facts.kernel_events.as_ref().map(|events| match events {
        Ok(()) => Verdict::new(
            KERNEL_EVENTS_CONDITION,
            true,
            "KernelEventsAttached",
            attached,
        ),
        Err(why) => Verdict::new(
            KERNEL_EVENTS_CONDITION,
            false,
            "KernelEventsUnavailable",
            why,
        ),
    }));
    all.into_iter()
        .map(|verdict| condition(verdict, previous, now))
        .collect()
}

/// A condition before it has times.
#[derive(Clone)]
struct Verdict {
    name: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn new(name: &'static str, holds: bool, reason: &'static str, message: &str) -> Self {
        Self {
            name,
            holds,
            reason,
            message: message.to_owned(),
        }
    }

    /// One of two reasons and messages.
    fn either(
        name: &'static str,
        holds: bool,
        yes: [&'static str; 2],
        no: [&'static str; 2],
    ) -> Self {
        let [reason, message] = if holds { yes } else { no };
        Self::new(name, holds, reason, message)
    }
}

fn pressures(pressure: Pressure) -> [Verdict; 3] {
    [
        Verdict::either(
            "MemoryPressure",
            pressure.memory,
            [
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ],
            [
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ],
        ),
        Verdict::either(
            "DiskPressure",
            pressure.disk,
            ["KubeletHasDiskPressure", "kubelet has disk pressure"],
            ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
        ),
        Verdict::either(
            "PIDPressure",
            pressure.pids,
            [
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ],
            [
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ],
        ),
    ]
}

fn condition(verdict: Verdict, previous: Option<&Node>, now: Timestamp) -> NodeCondition {
    let Verdict {
        name,
        holds,
        reason,
        message,
    } = verdict;
    let status = if holds { "True" } else { "False" };
    let before = previous.and_then(|node| node.status.as_ref());
    let mut before = before
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let same = before.find(|one| one.type_ == name && one.status == status);
    let since = same.and_then(|one| one.last_transition_time.clone());
    NodeCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(api_time(now)),
        last_transition_time: Some(since.unwrap_or_else(|| api_time(now))),
    }
}

fn shuts_down(facts: &NodeFacts) -> Option<String> {
    let message = "node is shutting down";
    facts.shutting_down.then(|| message.to_owned())
}

fn why_not_ready(health: &RuntimeHealth) -> Option<String> {
    match &health.status {
        Err(error) => Some(format!("container runtime is down: {error}")),
        Ok(status) if !status.runtime_ready => Some(format!(
            "container runtime status check may not have completed yet: {}",
            status.message
        )),
        Ok(status) if !status.network_ready => Some(format!(
            "container runtime network not ready: NetworkReady=false message:{}",
            status.message
        )),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests;
