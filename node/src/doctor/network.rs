//! What pod networks are made of, and what the host loses by them.

use swiftlet_cni::error::NetworkError;
use swiftlet_cni::host_check;

use super::Check;
use crate::options::NodeOptions;

pub(super) fn examine(options: &NodeOptions) -> Vec<Check> {
    let mut checks = vec![nftables(host_check::nftables())];
    let mut ranges = options.pod_cidr.values().iter();
    if ranges.any(|range| range.addr().is_ipv6()) {
        checks.push(default_route(host_check::routes_to_lose()));
    }
    checks
}

fn nftables(probed: Result<(), NetworkError>) -> Check {
    let name = "nf_tables";
    match probed {
        Ok(()) => Check::ok(name, "there"),
        Err(error) => Check::missing(
            name,
            format!(
                "{}: pods reach nothing outside of the node",
                with_cause(&error)
            ),
            "modprobe nf_tables, or a kernel with CONFIG_NF_TABLES",
        ),
    }
}

/// The first pod makes the host forward IPv6, and then it listens to routers no more.
fn default_route(found: Result<Vec<String>, NetworkError>) -> Check {
    let name = "ipv6 default route";
    match found {
        Ok(interfaces) if interfaces.is_empty() => Check::ok(name, "not lost by forwarding"),
        Ok(interfaces) => {
            let settings = interfaces
                .iter()
                .map(|interface| format!("net/ipv6/conf/{interface}/accept_ra=2"));
            Check::warning(
                name,
                format!(
                    "advertised by a router on {}: lost with the first pod",
                    interfaces.join(", ")
                ),
                format!("sysctl -w {}", settings.collect::<Vec<_>>().join(" ")),
            )
        }
        Err(error) => Check::warning(name, with_cause(&error), "run as root"),
    }
}

fn with_cause(error: &NetworkError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn what_the_network_lacks_or_costs_comes_with_its_remedy() {
        assert_eq!(nftables(Ok(())).verdict, Verdict::Ok);
        let step = "look for the table";
        let none = nftables(Err(NetworkError::Answer { step }));
        assert_eq!(none.verdict, Verdict::Missing);
        assert!(none.remedy.contains("nf_tables"), "{none}");
        assert_eq!(default_route(Ok(Vec::new())).verdict, Verdict::Ok);
        let lost = default_route(Ok(vec!["eth0".to_owned()]));
        assert_eq!(lost.verdict, Verdict::Warning);
        assert_eq!(lost.remedy, "sysctl -w net/ipv6/conf/eth0/accept_ra=2");
    }
}
