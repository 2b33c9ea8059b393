//! Which of the addresses of a sandbox are the pod's, and in which order.

use std::net::IpAddr;

/// The first address of the node's own family, then the first of the other one, whatever the
/// runtime's order is (`sortPodIPs` of pkg/kubelet/kubelet_pods.go). All users of the addresses
/// see the same ones: the status, the downward API, `/etc/hosts`, probes.
pub(crate) fn in_order_of_the_node(ips: &[String], node_ips: &[String]) -> Vec<String> {
    let is_ipv4 = |ip: &String| ip.parse::<IpAddr>().map(|ip| ip.is_ipv4());
    let ipv4_first = node_ips.first().is_none_or(|ip| is_ipv4(ip) == Ok(true));
    let first_of = |v4: bool| ips.iter().find(|ip| is_ipv4(ip) == Ok(v4)).cloned();
    [ipv4_first, !ipv4_first]
        .into_iter()
        .filter_map(first_of)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_nodes_family_comes_first_and_each_family_once() {
        let order =
            |ips: &[&str], node: &[&str]| in_order_of_the_node(&owned(ips), &owned(node)).join(" ");
        let both = ["fd00::2", "10.1.0.2"];
        assert_eq!(order(&both, &["192.0.2.1"]), "10.1.0.2 fd00::2");
        assert_eq!(
            order(&both, &["2001:db8::1", "192.0.2.1"]),
            "fd00::2 10.1.0.2"
        );
        assert_eq!(order(&both, &[]), "10.1.0.2 fd00::2");
        assert_eq!(order(&["fd00::2"], &["192.0.2.1"]), "fd00::2");
        let many = ["10.1.0.2", "10.2.0.2", "fd00::2", "fd01::2"];
        assert_eq!(order(&many, &["192.0.2.1"]), "10.1.0.2 fd00::2");
        assert_eq!(order(&[], &["192.0.2.1"]), "");
    }
}
