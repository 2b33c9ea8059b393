//! A sandbox as CRI wants it.

use k8s_cri::v1 as cri;
use swiftlet_model::runtime::{
    DnsConfig, NamespaceOptions, PodSecurity, PortMapping, SandboxConfig, SecurityProfile,
};

use super::security::{groups_policy, profile, selinux};
use super::{int64, map};

/// The sandbox's configuration.
pub(crate) fn config(sandbox: &SandboxConfig) -> cri::PodSandboxConfig {
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: sandbox.pod.name.clone(),
            uid: sandbox.pod.uid.to_string(),
            namespace: sandbox.pod.namespace.clone(),
            attempt: sandbox.attempt,
        }),
        hostname: hostname(sandbox),
        log_directory: sandbox.log_directory.display().to_string(),
        dns_config: sandbox.dns.as_ref().map(dns),
        port_mappings: sandbox.port_mappings.iter().map(port_mapping).collect(),
        labels: map(&sandbox.labels),
        annotations: map(&sandbox.annotations),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: sandbox.cgroup_parent.clone(),
            security_context: Some(security(&sandbox.security, sandbox.namespaces)),
            sysctls: map(&sandbox.sysctls),
            ..cri::LinuxPodSandboxConfig::default()
        }),
        windows: None,
    }
}

/// Which namespaces are shared with whom. A container's must equal its sandbox's.
pub(super) fn namespaces(options: NamespaceOptions) -> cri::NamespaceOption {
    let host_or_pod = |host: bool| {
        if host {
            cri::NamespaceMode::Node
        } else {
            cri::NamespaceMode::Pod
        }
    };
    let pid = match (options.host_pid, options.share_process_namespace) {
        (true, _) => cri::NamespaceMode::Node,
        (false, true) => cri::NamespaceMode::Pod,
        (false, false) => cri::NamespaceMode::Container,
    };
    cri::NamespaceOption {
        network: host_or_pod(options.host_network).into(),
        pid: pid.into(),
        ipc: host_or_pod(options.host_ipc).into(),
        ..cri::NamespaceOption::default()
    }
}

/// A pod in the host's network has the host's UTS namespace, whose name must not be set.
fn hostname(sandbox: &SandboxConfig) -> String {
    if sandbox.namespaces.host_network {
        String::new()
    } else {
        sandbox.hostname.clone()
    }
}

fn security(pod: &PodSecurity, options: NamespaceOptions) -> cri::LinuxSandboxSecurityContext {
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(options)),
        run_as_user: int64(pod.run_as_user),
        run_as_group: int64(pod.run_as_group),
        supplemental_groups: pod.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(pod.supplemental_groups_strict),
        selinux_options: pod.selinux.as_ref().map(selinux),
        privileged: pod.privileged,
        // What kubelet asks for: nothing of the user's runs in the sandbox's own container.
        seccomp: Some(profile(&SecurityProfile::RuntimeDefault)),
        ..cri::LinuxSandboxSecurityContext::default()
    }
}

fn dns(dns: &DnsConfig) -> cri::DnsConfig {
    cri::DnsConfig {
        servers: dns.servers.clone(),
        searches: dns.searches.clone(),
        options: dns.options.clone(),
    }
}

fn port_mapping(port: &PortMapping) -> cri::PortMapping {
    let protocol = match port.protocol.as_str() {
        "UDP" => cri::Protocol::Udp,
        "SCTP" => cri::Protocol::Sctp,
        _ => cri::Protocol::Tcp,
    };
    cri::PortMapping {
        protocol: protocol.into(),
        container_port: i32::from(port.container_port),
        host_port: i32::from(port.host_port),
        host_ip: port.host_ip.clone(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use swiftlet_model::ids::{PodKey, PodUid};
    use swiftlet_model::runtime::SeLinux;

    use super::*;

    /// A sandbox that uses as few features as possible.
    pub(in crate::convert) fn plain() -> SandboxConfig {
        SandboxConfig {
            pod: PodKey {
                namespace: "default".into(),
                name: "web".into(),
                uid: PodUid::from("uid-1"),
            },
            attempt: 3,
            hostname: "web".into(),
            log_directory: "/var/log/pods/default_web_uid-1".into(),
            labels: BTreeMap::from([("app".into(), "web".into())]),
            annotations: BTreeMap::new(),
            cgroup_parent: "/kubepods/burstable/poduid-1".into(),
            dns: None,
            port_mappings: Vec::new(),
            namespaces: NamespaceOptions::default(),
            sysctls: BTreeMap::from([("net.core.somaxconn".into(), "1024".into())]),
            runtime_handler: String::new(),
            security: PodSecurity::default(),
        }
    }

    #[test]
    fn a_plain_pod_shares_network_and_ipc_in_the_pod_and_nothing_with_the_host() {
        let options = namespaces(NamespaceOptions::default());
        assert_eq!(options.network(), cri::NamespaceMode::Pod);
        assert_eq!(options.ipc(), cri::NamespaceMode::Pod);
        assert_eq!(options.pid(), cri::NamespaceMode::Container);
    }

    #[test]
    fn host_namespaces_win_over_a_shared_process_namespace() {
        let options = namespaces(NamespaceOptions {
            host_network: true,
            host_pid: true,
            host_ipc: true,
            share_process_namespace: true,
        });
        assert_eq!(options.network(), cri::NamespaceMode::Node);
        assert_eq!(options.ipc(), cri::NamespaceMode::Node);
        assert_eq!(options.pid(), cri::NamespaceMode::Node);
    }

    #[test]
    fn everything_the_pod_says_about_its_sandbox_reaches_cri() {
        let mut sandbox = plain();
        sandbox.dns = Some(DnsConfig {
            servers: vec!["10.0.0.10".into()],
            searches: vec!["svc.cluster.local".into()],
            options: vec!["ndots:5".into()],
        });
        sandbox.port_mappings = vec![PortMapping {
            protocol: "UDP".into(),
            container_port: 53,
            host_port: 5353,
            host_ip: "127.0.0.1".into(),
        }];
        sandbox.security = PodSecurity {
            run_as_user: Some(1000),
            run_as_group: Some(1001),
            supplemental_groups: vec![7, 8],
            supplemental_groups_strict: true,
            privileged: true,
            selinux: Some(SeLinux {
                level: "s0".into(),
                ..SeLinux::default()
            }),
        };
        let cri = config(&sandbox);
        let metadata = cri.metadata.unwrap();
        assert_eq!((metadata.name.as_str(), metadata.attempt), ("web", 3));
        assert_eq!(metadata.uid, "uid-1");
        assert_eq!(cri.hostname, "web");
        assert_eq!(cri.log_directory, "/var/log/pods/default_web_uid-1");
        assert_eq!(cri.dns_config.unwrap().options, ["ndots:5"]);
        assert_eq!(cri.port_mappings[0].protocol(), cri::Protocol::Udp);
        assert_eq!(cri.port_mappings[0].host_port, 5353);
        let linux = cri.linux.unwrap();
        assert_eq!(linux.cgroup_parent, "/kubepods/burstable/poduid-1");
        assert_eq!(linux.sysctls["net.core.somaxconn"], "1024");
        let security = linux.security_context.unwrap();
        assert_eq!(
            security.supplemental_groups_policy(),
            cri::SupplementalGroupsPolicy::Strict
        );
        assert_eq!(security.run_as_user.unwrap().value, 1000);
        assert_eq!(security.run_as_group.unwrap().value, 1001);
        assert_eq!(security.supplemental_groups, [7, 8]);
        assert_eq!(security.selinux_options.unwrap().level, "s0");
        assert!(security.privileged);
    }

    #[test]
    fn a_pod_in_the_hosts_network_does_not_rename_the_host() {
        let mut sandbox = plain();
        sandbox.namespaces.host_network = true;
        assert_eq!(config(&sandbox).hostname, "");
    }
}
