//! Variables of Services, as containers have had them since Docker's links. Pure.
//!
//! Which Services count: `getServiceEnvVarMap` of `pkg/kubelet/kubelet_pods.go`; their variables:
//! `FromServices` of `pkg/kubelet/envvars/envvars.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

/// Namespace of the API server's own Service, which every container is told of.
pub const MASTER_NAMESPACE: &str = "default";
/// Its name.
const MASTER_SERVICE: &str = "kubernetes";

/// Whether the container is told of the Services of its own namespace.
pub fn service_links(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.enable_service_links)
        .unwrap_or(true)
}

/// The variables. `own` are the Services of the pod's namespace, or none if they are not linked;
/// `master` those of the namespace `default`.
pub fn service_variables(own: &[Service], master: &[Service]) -> BTreeMap<String, String> {
    let is_master = |service: &&Service| name(service) == MASTER_SERVICE;
    let mut all = BTreeMap::new();
    for service in master.iter().filter(is_master) {
        add(service, &mut all);
    }
    // Where two names give the same variable, the pod's own namespace wins.
    for service in own {
        add(service, &mut all);
    }
    all
}

fn name(service: &Service) -> &str {
    service.metadata.name.as_deref().unwrap_or_default()
}

fn add(service: &Service, all: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let ip = spec.cluster_ip.as_deref().unwrap_or_default();
    let ports: &[ServicePort] = spec.ports.as_deref().unwrap_or_default();
    let (true, Some(first)) = (!ip.is_empty() && ip != "None", ports.first()) else {
        return;
    };
    let prefix = variable(name(service));
    all.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    all.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let key = format!("{prefix}_SERVICE_PORT_{}", variable(name));
            all.insert(key, port.port.to_string());
        }
    }
    // An IPv6 address stands in brackets before a port.
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    for (at, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().filter(|text| !text.is_empty());
        let protocol = protocol.unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{host}:{}", port.port);
        if at == 0 {
            all.insert(format!("{prefix}_PORT"), url.clone());
        }
        let key = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        all.insert(format!("{key}_PROTO"), lower);
        all.insert(format!("{key}_PORT"), port.port.to_string());
        all.insert(format!("{key}_ADDR"), ip.to_owned());
        all.insert(key, url);
    }
}

/// A name as part of a variable's.
fn variable(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn service(name: &str, ip: &str, ports: &[(Option<&str>, i32, Option<&str>)]) -> Service {
        let port = |(name, port, protocol): &(Option<&str>, i32, Option<&str>)| ServicePort {
            name: name.map(str::to_owned),
            port: *port,
            protocol: protocol.map(str::to_owned),
            ..ServicePort::default()
        };
        Service {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                cluster_ip: Some(ip.into()),
                ports: Some(ports.iter().map(port).collect()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        }
    }

    #[test]
    fn a_service_is_told_in_all_the_old_words() {
        let ports = [
            (Some("http-main"), 80, None),
            (Some("dns"), 53, Some("UDP")),
        ];
        let all = service_variables(&[service("my-db", "10.0.0.7", &ports)], &[]);
        let expected = [
            ("MY_DB_PORT", "tcp://10.0.0.7:80"),
            ("MY_DB_PORT_53_UDP", "udp://10.0.0.7:53"),
            ("MY_DB_PORT_53_UDP_ADDR", "10.0.0.7"),
            ("MY_DB_PORT_53_UDP_PORT", "53"),
            ("MY_DB_PORT_53_UDP_PROTO", "udp"),
            ("MY_DB_PORT_80_TCP", "tcp://10.0.0.7:80"),
            ("MY_DB_PORT_80_TCP_ADDR", "10.0.0.7"),
            ("MY_DB_PORT_80_TCP_PORT", "80"),
            ("MY_DB_PORT_80_TCP_PROTO", "tcp"),
            ("MY_DB_SERVICE_HOST", "10.0.0.7"),
            ("MY_DB_SERVICE_PORT", "80"),
            ("MY_DB_SERVICE_PORT_DNS", "53"),
            ("MY_DB_SERVICE_PORT_HTTP_MAIN", "80"),
        ];
        let all: Vec<_> = all
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_service_without_an_address_is_not_told() {
        for ip in ["", "None"] {
            assert!(service_variables(&[service("a", ip, &[(None, 1, None)])], &[]).is_empty());
        }
    }

    #[test]
    fn of_the_default_namespace_only_the_api_servers_service_is_told_elsewhere() {
        let ports = [(Some("https"), 443, None)];
        let master = [
            service("kubernetes", "10.0.0.1", &ports),
            service("other", "10.0.0.2", &ports),
        ];
        let all = service_variables(&[], &master);
        assert_eq!(all["KUBERNETES_SERVICE_HOST"], "10.0.0.1");
        assert!(all.keys().all(|key| !key.starts_with("OTHER")));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets_before_a_port() {
        let all = service_variables(&[service("a", "fd00::1", &[(None, 1, None)])], &[]);
        assert_eq!(all["A_PORT"], "tcp://[fd00::1]:1");
        assert_eq!(all["A_PORT_1_TCP_ADDR"], "fd00::1");
    }
}
