//! What both sides read out of a pod's spec.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// Every address of a node.
const ANY_ADDRESS: &str = "0.0.0.0";

/// An init container that goes on beside the main ones: a sidecar.
pub fn is_sidecar(init: &Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

/// The containers that run side by side: the main ones, then the sidecars.
pub fn lasting_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init.filter(|one| is_sidecar(one)))
}

/// The main or init container of that name.
pub fn plain_container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let mut all = spec.containers.iter().chain(init);
    all.find(|one| one.name == name)
}

/// A port of the node that a pod takes for itself. In order, ports of one protocol and number stand
/// together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
    /// The address; `0.0.0.0` for all.
    pub ip: String,
}

impl HostPort {
    /// Whether both cannot be had at once.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ANY_ADDRESS || other.ip == ANY_ADDRESS)
    }
}

/// The ports of the node that a pod takes: those of its main containers and of its sidecars.
pub fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort> {
    let containers = pod.spec.iter().flat_map(lasting_containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let text = |text: &Option<String>, otherwise: &str| match text.as_deref() {
        None | Some("") => otherwise.to_owned(),
        Some(text) => text.to_owned(),
    };
    ports.filter_map(move |port| {
        Some(HostPort {
            protocol: text(&port.protocol, "TCP"),
            port: port.host_port.filter(|port| *port > 0)?,
            ip: text(&port.host_ip, ANY_ADDRESS),
        })
    })
}
