//! Ports of a node that pods take for themselves.

use k8s_openapi::api::core::v1::Pod;

/// Every address of the node.
const ANY: &str = "0.0.0.0";

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    protocol: String,
    ip: String,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be had at once.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

/// The ports that a pod takes: those of its main containers and of its sidecars.
pub(crate) fn of(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let text = |text: &Option<String>, otherwise: &str| match text.as_deref() {
        None | Some("") => otherwise.to_owned(),
        Some(text) => text.to_owned(),
    };
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                protocol: text(&port.protocol, "TCP"),
                ip: text(&port.host_ip, ANY),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}
