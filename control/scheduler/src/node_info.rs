//! A node with what is used of it, and all nodes at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use swiftlet_proto::pod::{HostPort, host_ports};

use crate::resources::{Resources, Unrequested, pod_requests};

/// A node and the sum of its pods, assumed ones included.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    node: Arc<Node>,
    allocatable: Resources,
    requested: Resources,
    counted: Resources,
    pods: i64,
    ports: Vec<HostPort>,
}

/// What one pod takes from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUse {
    /// What it asks for.
    pub requested: Resources,
    /// The same, with defaults for what it does not ask for: for comparing nodes.
    pub counted: Resources,
    /// Ports of the node.
    pub ports: Vec<HostPort>,
}

impl PodUse {
    /// What this pod takes.
    pub fn of(pod: &Pod) -> Self {
        Self {
            requested: pod_requests(pod, Unrequested::Zero),
            counted: pod_requests(pod, Unrequested::Default),
            ports: host_ports(pod).collect(),
        }
    }
}

impl NodeInfo {
    /// A node without pods.
    pub fn new(node: Arc<Node>) -> Self {
        Self {
            allocatable: allocatable(&node),
            node,
            requested: Resources::default(),
            counted: Resources::default(),
            pods: 0,
            ports: Vec::new(),
        }
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its labels.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.node.metadata.labels.as_ref()
    }

    /// Its taints.
    pub fn taints(&self) -> &[Taint] {
        self.node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default()
    }

    /// What pods may use.
    pub fn allocatable(&self) -> &Resources {
        &self.allocatable
    }

    /// What its pods ask for.
    pub fn requested(&self) -> &Resources {
        &self.requested
    }

    /// The same, with defaults for pods that ask for nothing.
    pub fn counted(&self) -> &Resources {
        &self.counted
    }

    /// How many pods it has.
    pub fn pods(&self) -> i64 {
        self.pods
    }

    /// Whether no pod has this port.
    pub fn has_free(&self, port: &HostPort) -> bool {
        !self.ports.iter().any(|taken| taken.conflicts(port))
    }

    /// Another state of the same node.
    pub(crate) fn set_node(&mut self, node: Arc<Node>) {
        self.allocatable = allocatable(&node);
        self.node = node;
    }

    /// Adds a pod.
    pub fn add(&mut self, pod: &PodUse) {
        self.requested.add(&pod.requested);
        self.counted.add(&pod.counted);
        self.pods += 1;
        self.ports.extend(pod.ports.iter().cloned());
    }

    /// Removes a pod that was added.
    pub(crate) fn remove(&mut self, pod: &PodUse) {
        self.requested.subtract(&pod.requested);
        self.counted.subtract(&pod.counted);
        self.pods -= 1;
        for port in &pod.ports {
            // Each pod's own entry goes, and no other pod's.
            if let Some(at) = self.ports.iter().position(|taken| taken == port) {
                self.ports.swap_remove(at);
            }
        }
    }
}

/// All nodes at one moment; copying it costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    nodes: OrdMap<String, Arc<NodeInfo>>,
}

impl Snapshot {
    pub(crate) fn new(nodes: OrdMap<String, Arc<NodeInfo>>) -> Self {
        Self { nodes }
    }

    /// The nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().map(|info| &**info)
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name).map(|info| &**info)
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl FromIterator<NodeInfo> for Snapshot {
    fn from_iter<I: IntoIterator<Item = NodeInfo>>(nodes: I) -> Self {
        let named = |info: NodeInfo| (info.name().to_owned(), Arc::new(info));
        Self {
            nodes: nodes.into_iter().map(named).collect(),
        }
    }
}

/// `status.allocatable`, or `status.capacity` from a node that does not report it.
fn allocatable(node: &Node) -> Resources {
    let status = node.status.as_ref();
    let amounts = status
        .and_then(|status| status.allocatable.as_ref())
        .or_else(|| status.and_then(|status| status.capacity.as_ref()));
    Resources::of(amounts)
}
