//! Ports of the node that lead to the pod. Pure.

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};
use swiftlet_model::runtime::PortMapping;
use swiftlet_proto::pod::lasting_containers;

/// The host ports of the pod's main containers and sidecars. A pod in the node's own network needs
/// none: what it listens on is a port of the node already.
pub(super) fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    if spec.host_network.unwrap_or_default() {
        return Vec::new();
    }
    let ports = lasting_containers(spec).flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(port_mapping).collect()
}

fn port_mapping(port: &ContainerPort) -> Option<PortMapping> {
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    Some(PortMapping {
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        container_port: number(port.container_port)?,
        host_port: number(port.host_port?)?,
        host_ip: port.host_ip.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn host_ports_of_main_containers_and_sidecars_are_passed_on() {
        let port =
            |host: u16| json!([{"containerPort": 80, "hostPort": host}, {"containerPort": 81}]);
        let spec = |host_network: bool| -> PodSpec {
            serde_json::from_value(json!({
                "hostNetwork": host_network,
                "initContainers": [
                    {"name": "once", "ports": port(1)},
                    {"name": "sidecar", "restartPolicy": "Always", "ports": port(2)},
                ],
                "containers": [{"name": "main", "ports": port(3)}],
            }))
            .unwrap()
        };
        let mapped = |spec: &PodSpec| -> Vec<_> {
            let all = port_mappings(spec);
            all.iter()
                .map(|one| (one.host_port, one.container_port))
                .collect()
        };
        assert_eq!(mapped(&spec(false)), [(3, 80), (2, 80)]);
        assert_eq!(mapped(&spec(true)), []);
    }
}
