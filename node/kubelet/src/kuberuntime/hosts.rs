//! The `/etc/hosts` that the containers of a pod see. Pure. Rules: `managedHostsFileContent` and
//! `nodeHostsFileContent` in `pkg/kubelet/kubelet_pods.go`.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

use crate::kuberuntime::config::host_network;
use crate::kuberuntime::config::hostname::host_names;

/// Where the file is mounted.
pub(crate) const HOSTS_PATH: &str = "/etc/hosts";

/// How the file begins that is the node's own.
const NODE_HEADER: &str = "# Kubernetes-managed hosts file (host network).\n";
/// How the file begins that is the pod's.
const POD_HEADER: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The content. `node`: what the node's own file says, for a pod in the node's network.
pub(crate) fn content(pod: &Pod, ips: &[String], cluster_domain: &str, node: &str) -> String {
    let mut text = if host_network(pod) {
        format!("{NODE_HEADER}{node}")
    } else {
        let mut text = POD_HEADER.to_owned();
        let (hostname, domain) = host_names(pod, cluster_domain);
        for ip in ips {
            // Writing to a string cannot fail.
            let _ = match &domain {
                Some(domain) => writeln!(text, "{ip}\t{hostname}.{domain}\t{hostname}"),
                None => writeln!(text, "{ip}\t{hostname}"),
            };
        }
        text
    };
    let spec = pod.spec.as_ref();
    let aliases = spec.and_then(|spec| spec.host_aliases.as_deref());
    let aliases = aliases.unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(text, "{}\t{names}", alias.ip);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &serde_json::Value) -> Pod {
        let pod = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_finds_itself_by_its_names_and_others_by_its_aliases() {
        let spec = json!({"containers": [], "hostname": "db", "subdomain": "tier", "hostAliases": [
            {"ip": "10.1.2.3", "hostnames": ["foo.local", "bar.local"]},
        ]});
        let text = content(&pod(&spec), &["10.0.0.7".into()], "cluster.local", "");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        let end = "10.0.0.7\tdb.tier.shop.svc.cluster.local\tdb\n\n\
                   # Entries added by HostAliases.\n10.1.2.3\tfoo.local\tbar.local\n";
        assert!(text.ends_with(end), "{text}");
        let plain = content(
            &pod(&json!({"containers": []})),
            &["fd00::7".into()],
            "x",
            "",
        );
        assert!(plain.ends_with("ip6-allrouters\nfd00::7\tweb\n"), "{plain}");
    }

    #[test]
    fn a_pod_in_the_nodes_network_sees_the_nodes_file() {
        let spec = json!({"containers": [], "hostNetwork": true});
        let text = content(&pod(&spec), &["10.0.0.7".into()], "x", "127.0.0.1\tn1\n");
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tn1\n"
        );
    }
}
