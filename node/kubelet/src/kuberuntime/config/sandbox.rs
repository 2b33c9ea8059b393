//! A pod's sandbox as the runtime is told. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::{NamespaceOptions, PodSecurity, SandboxConfig};

use super::dns::pod_dns;
use super::hostname::{host_names, kernel_hostname};
use super::ports::port_mappings;
use super::security::{groups_strict, is_privileged, selinux, supplemental_groups};
use super::sysctl;
use crate::options::PodSettings;

/// What a sandbox depends on beside the pod.
#[derive(Clone, Copy, Debug)]
pub struct SandboxInputs<'a> {
    /// Folder of all pods' logs.
    pub log_root: &'a Path,
    /// The pod's cgroup.
    pub cgroup: &'a str,
    /// How this node treats its pods.
    pub settings: &'a PodSettings,
    /// The node's `resolv.conf`; `None` if it uses none.
    pub resolv_conf: Option<&'a str>,
}

/// The sandbox of a pod; the runtime's handler is filled in by who looks up the RuntimeClass.
pub fn sandbox_config(pod: &Pod, attempt: u32, inputs: &SandboxInputs<'_>) -> SandboxConfig {
    let key = PodKey::of(pod);
    let spec = pod.spec.clone().unwrap_or_default();
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(super::pod_labels(&key));
    let domain = &inputs.settings.cluster_domain;
    // A full name that is too long is refused before the sandbox is made.
    let hostname = kernel_hostname(pod, domain).unwrap_or_else(|_| host_names(pod, domain).0);
    let (dns, _) = pod_dns(pod, inputs.settings, inputs.resolv_conf);
    SandboxConfig {
        attempt,
        hostname,
        log_directory: inputs.log_root.join(key.log_folder()),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: inputs.cgroup.to_owned(),
        dns: Some(dns),
        port_mappings: port_mappings(&spec),
        namespaces: namespaces(&spec),
        sysctls: sysctls(&spec),
        runtime_handler: String::new(),
        security: pod_security(&spec),
        pod: key,
    }
}

/// How the pod's namespaces relate to the host.
pub(super) fn namespaces(spec: &PodSpec) -> NamespaceOptions {
    NamespaceOptions {
        host_network: spec.host_network.unwrap_or_default(),
        host_pid: spec.host_pid.unwrap_or_default(),
        host_ipc: spec.host_ipc.unwrap_or_default(),
        share_process_namespace: spec.share_process_namespace.unwrap_or_default(),
    }
}

fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let all = spec
        .security_context
        .iter()
        .flat_map(|context| context.sysctls.iter().flatten());
    all.map(|one| (sysctl::normal(&one.name), one.value.clone()))
        .collect()
}

fn pod_security(spec: &PodSpec) -> PodSecurity {
    let context = spec.security_context.clone().unwrap_or_default();
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut contexts = spec
        .containers
        .iter()
        .chain(init)
        .map(|one| &one.security_context)
        .chain(ephemeral.map(|one| &one.security_context))
        .flatten();
    PodSecurity {
        run_as_user: context.run_as_user,
        run_as_group: context.run_as_group,
        supplemental_groups: supplemental_groups(spec),
        supplemental_groups_strict: groups_strict(spec),
        privileged: contexts.any(is_privileged),
        selinux: context.se_linux_options.as_ref().map(selinux),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        EphemeralContainer, PodSecurityContext, SELinuxOptions, SecurityContext, Sysctl,
    };

    use super::*;
    use crate::testing::stand::pod;

    fn made(change: impl FnOnce(&mut PodSpec)) -> SandboxConfig {
        let mut pod = pod("a");
        change(pod.spec.as_mut().unwrap());
        let inputs = SandboxInputs {
            log_root: Path::new("/logs"),
            cgroup: "/kubepods/x",
            settings: &PodSettings::default(),
            resolv_conf: Some("nameserver 9.9.9.9"),
        };
        sandbox_config(&pod, 2, &inputs)
    }

    #[test]
    fn all_that_the_pod_says_of_its_sandbox_is_in_it() {
        let sandbox = made(|spec| {
            spec.host_pid = Some(true);
            spec.host_ipc = Some(true);
            spec.share_process_namespace = Some(false);
            spec.security_context = Some(PodSecurityContext {
                run_as_user: Some(5),
                run_as_group: Some(6),
                supplemental_groups: Some(vec![7]),
                supplemental_groups_policy: Some("Strict".into()),
                fs_group: Some(8),
                sysctls: Some(vec![Sysctl {
                    name: "net/core/somaxconn".into(),
                    value: "9".into(),
                }]),
                se_linux_options: Some(SELinuxOptions {
                    level: Some("s0".into()),
                    ..SELinuxOptions::default()
                }),
                ..PodSecurityContext::default()
            });
        });
        assert_eq!(sandbox.attempt, 2);
        assert!(sandbox.log_directory.starts_with("/logs"));
        assert_eq!(sandbox.cgroup_parent, "/kubepods/x");
        assert!(sandbox.namespaces.host_pid && sandbox.namespaces.host_ipc);
        assert_eq!(sandbox.sysctls["net.core.somaxconn"], "9");
        let security = &sandbox.security;
        assert_eq!(
            (security.run_as_user, security.run_as_group),
            (Some(5), Some(6))
        );
        assert_eq!(security.supplemental_groups, [8, 7]);
        assert!(security.supplemental_groups_strict && !security.privileged);
        assert_eq!(security.selinux.as_ref().unwrap().level, "s0");
        assert_eq!(sandbox.dns.unwrap().servers, ["9.9.9.9"]);
    }

    #[test]
    fn one_privileged_container_of_any_kind_makes_the_sandbox_privileged() {
        let context = SecurityContext {
            privileged: Some(true),
            ..SecurityContext::default()
        };
        assert!(!made(|_| ()).security.privileged);
        let ephemeral = EphemeralContainer {
            security_context: Some(context.clone()),
            ..EphemeralContainer::default()
        };
        assert!(
            made(|spec| spec.ephemeral_containers = Some(vec![ephemeral]))
                .security
                .privileged
        );
        assert!(
            made(|spec| spec.containers[0].security_context = Some(context))
                .security
                .privileged
        );
    }
}
