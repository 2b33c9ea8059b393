//! Whether the node can and may run a pod as safely as the pod asks. Pure.

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::runtime::SecurityProfile;

use super::{Rejection, rejection};
use crate::kuberuntime::config::security::app_armor_profile;
use crate::kuberuntime::config::sysctl::normal;

/// Sysctls that do not reach beyond the pod. They need Linux 4.15 at the latest, which is older
/// than the oldest served kernel (`pkg/kubelet/sysctl/safe_sysctls.go`).
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
/// Beginnings of the sysctls of the IPC namespace (`pkg/kubelet/sysctl/namespace.go`).
const IPC_SYSCTLS: [&str; 4] = ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."];

/// What a pod's safety depends on beside the pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Safety<'a> {
    /// The kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// `allowedUnsafeSysctls`.
    pub allowed_unsafe_sysctls: &'a [String],
}

/// Whether the pod asks for nothing that the node cannot or must not give.
pub(super) fn check(pod: &Pod, node: Safety<'_>) -> Result<(), Rejection> {
    sysctls(pod, node.allowed_unsafe_sysctls)?;
    groups(pod)?;
    app_armor(pod, node.app_armor)
}

/// `pkg/kubelet/sysctl/allowlist.go`.
fn sysctls(pod: &Pod, allowed: &[String]) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let host_network = spec.host_network.unwrap_or_default();
    let host_ipc = spec.host_ipc.unwrap_or_default();
    let context = spec.security_context.as_ref();
    for sysctl in context.iter().flat_map(|one| one.sysctls.iter().flatten()) {
        let name = normal(&sysctl.name);
        let forbidden = |text: String| {
            let message = format!("forbidden sysctl: \"{name}\" {text}");
            Err(rejection("SysctlForbidden", message))
        };
        if !SAFE_SYSCTLS.contains(&name.as_str()) && !allows(allowed, &name) {
            return forbidden("not allowlisted".to_owned());
        }
        let namespace = match IPC_SYSCTLS.iter().any(|begin| name.starts_with(begin)) {
            true if host_ipc => "IPC",
            false if host_network => "Net",
            _ => continue,
        };
        return forbidden(format!("not allowed with host {namespace} enabled"));
    }
    Ok(())
}

fn allows(allowed: &[String], name: &str) -> bool {
    allowed
        .iter()
        .map(|pattern| normal(pattern))
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        })
}

/// The groups of an image are the runtime's to leave out; those that are served cannot
/// (`pkg/kubelet/lifecycle/predicate.go`).
fn groups(pod: &Pod) -> Result<(), Rejection> {
    let context = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|one| one.supplemental_groups_policy.as_deref());
    if policy != Some("Strict") {
        return Ok(());
    }
    Err(rejection(
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
    ))
}

/// A profile that would not be enforced is no protection
/// (`pkg/security/apparmor/validate.go`).
fn app_armor(pod: &Pod, enforced: bool) -> Result<(), Rejection> {
    let Some(spec) = pod.spec.as_ref().filter(|_| !enforced) else {
        return Ok(());
    };
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut all = spec
        .containers
        .iter()
        .chain(init)
        .map(|one| (&one.name, one.security_context.as_ref()))
        .chain(ephemeral.map(|one| (&one.name, one.security_context.as_ref())));
    let confined = |profile| profile != SecurityProfile::Unconfined;
    if all.any(|(name, own)| app_armor_profile(pod, name, own).is_some_and(confined)) {
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        return Err(rejection("AppArmor", message.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        AppArmorProfile, PodSecurityContext, SecurityContext, Sysctl,
    };

    use super::*;
    use crate::testing::stand::pod;

    fn with_sysctl(name: &str) -> Pod {
        let mut pod = pod("a");
        pod.spec.as_mut().unwrap().security_context = Some(PodSecurityContext {
            sysctls: Some(vec![Sysctl {
                name: name.into(),
                value: "1".into(),
            }]),
            ..PodSecurityContext::default()
        });
        pod
    }

    fn with_armor(kind: &str) -> Pod {
        let mut pod = pod("a");
        let spec = pod.spec.as_mut().unwrap();
        spec.containers[0].security_context = Some(SecurityContext {
            app_armor_profile: Some(AppArmorProfile {
                type_: kind.into(),
                localhost_profile: Some("mine".into()),
            }),
            ..SecurityContext::default()
        });
        pod
    }

    fn reason(pod: &Pod, node: Safety<'_>) -> Option<(String, String)> {
        let refused = check(pod, node).err()?;
        Some((refused.reason, refused.message))
    }

    #[test]
    fn a_safe_sysctl_is_taken_and_another_only_if_the_node_allows_it() {
        let none = Safety::default();
        assert_eq!(reason(&with_sysctl("net/ipv4/tcp_rmem"), none), None);
        let unsafe_one = with_sysctl("net.core.somaxconn");
        let (reason_, message) = reason(&unsafe_one, none).unwrap();
        assert_eq!(reason_, "SysctlForbidden");
        assert_eq!(
            message,
            "forbidden sysctl: \"net.core.somaxconn\" not allowlisted"
        );
        for pattern in ["net.core.somaxconn", "net.core.*"] {
            let allowed = [pattern.to_owned()];
            let node = Safety {
                allowed_unsafe_sysctls: &allowed,
                ..none
            };
            assert_eq!(reason(&unsafe_one, node), None);
        }
    }

    #[test]
    fn a_sysctl_of_a_namespace_that_is_the_hosts_is_refused() {
        let mut net = with_sysctl("net.ipv4.tcp_syncookies");
        net.spec.as_mut().unwrap().host_network = Some(true);
        let mut ipc = with_sysctl("kernel.shm_rmid_forced");
        ipc.spec.as_mut().unwrap().host_network = Some(true);
        assert_eq!(reason(&ipc, Safety::default()), None);
        ipc.spec.as_mut().unwrap().host_ipc = Some(true);
        for (pod, end) in [(net, "host Net enabled"), (ipc, "host IPC enabled")] {
            let (_, message) = reason(&pod, Safety::default()).unwrap();
            assert!(message.ends_with(end), "{message}");
        }
    }

    #[test]
    fn a_profile_that_would_not_be_enforced_is_refused() {
        let with = Safety {
            app_armor: true,
            ..Safety::default()
        };
        for kind in ["RuntimeDefault", "Localhost"] {
            let (reason_, message) = reason(&with_armor(kind), Safety::default()).unwrap();
            assert_eq!(reason_, "AppArmor");
            assert_eq!(
                message,
                "Cannot enforce AppArmor: AppArmor is not enabled on the host"
            );
            assert_eq!(reason(&with_armor(kind), with), None);
        }
        assert_eq!(reason(&with_armor("Unconfined"), Safety::default()), None);
        assert_eq!(reason(&pod("a"), Safety::default()), None);
    }

    #[test]
    fn groups_that_cannot_be_left_out_are_refused() {
        let mut pod = pod("a");
        let strict = PodSecurityContext {
            supplemental_groups_policy: Some("Strict".into()),
            ..PodSecurityContext::default()
        };
        pod.spec.as_mut().unwrap().security_context = Some(strict);
        let (reason, _) = reason(&pod, Safety::default()).unwrap();
        assert_eq!(reason, "SupplementalGroupsPolicyNotSupported");
    }
}
