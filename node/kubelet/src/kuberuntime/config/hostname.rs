//! What the pod calls itself. Pure.
//!
//! The rules are `GeneratePodHostNameAndDomain` of `pkg/kubelet/kubelet_pods.go` and
//! `GetNodenameForKernel` of `pkg/kubelet/util/util.go`.

use k8s_openapi::api::core::v1::Pod;

/// Longest host name in bytes: one label of DNS.
const HOSTNAME_BYTES_MAX: usize = 63;
/// Longest name that Linux takes as a machine's, in bytes (`__NEW_UTS_LEN`).
const FQDN_BYTES_MAX: usize = 64;

/// The full name cannot be the kernel's host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {0} is too long \
     ({FQDN_BYTES_MAX} characters is the max, {len} characters requested)",
    len = .0.len()
)]
pub struct FqdnTooLong(pub String);

/// The pod's host name, `spec.hostname` or its own name, and its domain if it has a subdomain.
pub fn host_names(pod: &Pod, cluster_domain: &str) -> (String, Option<String>) {
    let spec = pod.spec.as_ref();
    let written = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let mut hostname = spec
        .and_then(|spec| written(spec.hostname.as_ref()))
        .unwrap_or(name);
    // Names in the API are ASCII; what ends with a mark after the cut is no host name.
    hostname.truncate(HOSTNAME_BYTES_MAX);
    let hostname = hostname.trim_end_matches(['-', '.']).to_owned();
    let domain = spec
        .and_then(|spec| written(spec.subdomain.as_ref()))
        .map(|subdomain| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            format!("{subdomain}.{namespace}.svc.{cluster_domain}")
        });
    (hostname, domain)
}

/// What the kernel of the pod says: the host name, or the full one with `setHostnameAsFQDN`.
pub fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, FqdnTooLong> {
    let (hostname, domain) = host_names(pod, cluster_domain);
    let full = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.set_hostname_as_fqdn)
        .unwrap_or_default();
    match domain {
        Some(domain) if full => {
            let fqdn = format!("{hostname}.{domain}");
            if fqdn.len() > FQDN_BYTES_MAX {
                return Err(FqdnTooLong(fqdn));
            }
            Ok(fqdn)
        }
        _ => Ok(hostname),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;
    use crate::testing::stand::pod;

    fn with(change: impl FnOnce(&mut PodSpec)) -> Pod {
        let mut pod = pod("a");
        pod.metadata.namespace = Some("ns".into());
        change(pod.spec.as_mut().unwrap());
        pod
    }

    #[test]
    fn a_pod_is_called_as_it_says_or_by_its_name() {
        assert_eq!(host_names(&pod("web"), "c.local"), ("web".into(), None));
        let named = with(|spec| {
            spec.hostname = Some("db".into());
            spec.subdomain = Some("tier".into());
        });
        let domain = Some("tier.ns.svc.c.local".to_owned());
        assert_eq!(host_names(&named, "c.local"), ("db".into(), domain));
        assert_eq!(kernel_hostname(&named, "c.local"), Ok("db".into()));
    }

    #[test]
    fn a_long_name_is_cut_to_a_label_that_ends_well() {
        let long = format!("{}-.x", "a".repeat(61));
        assert_eq!(host_names(&pod(&long), "c").0, "a".repeat(61));
    }

    #[test]
    fn the_full_name_is_the_kernels_if_asked_for_and_if_it_fits() {
        let mut full = with(|spec| {
            spec.hostname = Some("db".into());
            spec.subdomain = Some("tier".into());
            spec.set_hostname_as_fqdn = Some(true);
        });
        let name = kernel_hostname(&full, "c.local").unwrap();
        assert_eq!(name, "db.tier.ns.svc.c.local");
        // 64 bytes fit, 65 do not.
        let room = 64 - "db.tier.ns.svc.".len();
        assert!(kernel_hostname(&full, &"c".repeat(room)).is_ok());
        let error = kernel_hostname(&full, &"c".repeat(room + 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN db.tier"
        ));
        assert!(text.ends_with("is too long (64 characters is the max, 65 characters requested)"));
        // Without a subdomain there is no full name.
        full.spec.as_mut().unwrap().subdomain = None;
        assert_eq!(kernel_hostname(&full, "c.local"), Ok("db".into()));
    }
}
