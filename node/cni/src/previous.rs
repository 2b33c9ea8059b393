//! `prevResult`: what the plugins before this one did (ADD), or what ADD ended with (CHECK).
//!
//! Later plugins of a chain may have changed it (`tuning` another hardware address, `bandwidth`
//! another interface), so CHECK compares the pod with it and not with what this plugin answered.
//! The rules are those of the reference plugin (cmdCheck in plugins/main/bridge/bridge.go).

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// A result, in any version from 0.3.0 on. What is not compared is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PreviousResult {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    ips: Vec<Ip>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Interface {
    name: String,
    #[serde(default)]
    mac: String,
    /// The namespace that it is in; the host's if empty.
    #[serde(default)]
    sandbox: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Ip {
    address: IpNet,
    /// Place of its interface in the list; others than the pod's are not compared.
    interface: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Route {
    dst: IpNet,
    gw: Option<IpAddr>,
}

/// An interface as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) mac: String,
}

/// A pod's network as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) netns: String,
    pub(crate) pod: Seen,
    /// The other end of the pair.
    pub(crate) host: Option<Seen>,
    /// What the other end is a port of.
    pub(crate) bridge: Option<Seen>,
    pub(crate) addresses: Vec<IpNet>,
    /// Destination and gateway of the pod's routes.
    pub(crate) routes: Vec<(IpNet, Option<IpAddr>)>,
}

impl PreviousResult {
    /// Whether a plugin before made this interface in the namespace.
    pub(crate) fn has(&self, ifname: &str, netns: &str) -> bool {
        let mut interfaces = self.interfaces.iter();
        interfaces.any(|one| one.name == ifname && one.sandbox == netns)
    }

    /// The first thing that is not as the result says. Pure.
    pub(crate) fn difference(&self, bridges: &[String], observed: &Observed) -> Option<String> {
        self.different_interface(bridges, observed)
            .or_else(|| self.different_address(observed))
            .or_else(|| self.missing_route(observed))
    }

    fn different_interface(&self, bridges: &[String], observed: &Observed) -> Option<String> {
        let Observed { netns, pod, .. } = observed;
        let inside = |one: &&Interface| one.name == pod.name && one.sandbox == *netns;
        let Some(written) = self.interfaces.iter().find(inside) else {
            return Some(format!("prevResult has no {} in {netns}", pod.name));
        };
        if let Some(difference) = written.different_mac(pod) {
            return Some(difference);
        }
        let on_host = |name: &str| {
            let mut interfaces = self.interfaces.iter();
            interfaces.find(|one| one.name == name && one.sandbox.is_empty())
        };
        let is_a_bridge = |one: &&Interface| bridges.contains(&one.name) && one.sandbox.is_empty();
        let bridge = self.interfaces.iter().find(is_a_bridge);
        let (Some(host), Some(bridge)) = (&observed.host, bridge) else {
            return Some(
                "the other end of the pair, or the bridge in prevResult, is missing".into(),
            );
        };
        let Some(end) = on_host(&host.name) else {
            return Some(format!(
                "prevResult has no {}, which {} leads to",
                host.name, pod.name
            ));
        };
        match &observed.bridge {
            Some(master) if master.name == bridge.name => end
                .different_mac(host)
                .or_else(|| bridge.different_mac(master)),
            _ => Some(format!("{} is no port of {}", host.name, bridge.name)),
        }
    }

    fn different_address(&self, observed: &Observed) -> Option<String> {
        let of_the_pod = |ip: &&Ip| {
            let interface = ip.interface.map(|at| self.interfaces.get(at));
            // An address without a place is the pod's too.
            interface.is_none_or(|one| one.is_some_and(|one| one.name == observed.pod.name))
        };
        let mut addresses = self.ips.iter().filter(of_the_pod);
        let missing = addresses.find(|ip| !observed.addresses.contains(&ip.address))?;
        Some(format!(
            "{} lacks the address {} of prevResult",
            observed.pod.name, missing.address
        ))
    }

    fn missing_route(&self, observed: &Observed) -> Option<String> {
        let present = |route: &Route| {
            let same = |(dst, gw): &(IpNet, Option<IpAddr>)| {
                *dst == route.dst && (route.gw.is_none() || route.gw == *gw)
            };
            observed.routes.iter().any(same)
        };
        let missing = self.routes.iter().find(|route| !present(route))?;
        Some(format!(
            "the route to {} of prevResult is missing",
            missing.dst
        ))
    }
}

impl Interface {
    /// A result need not say the address.
    fn different_mac(&self, seen: &Seen) -> Option<String> {
        let same = self.mac.is_empty() || self.mac.eq_ignore_ascii_case(&seen.mac);
        (!same).then(|| {
            format!(
                "{} has the hardware address {} instead of {} of prevResult",
                seen.name, seen.mac, self.mac
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result() -> Value {
        json!({
            "cniVersion": "0.4.0",
            "interfaces": [
                { "name": "sw0", "mac": "02:00:00:00:00:01" },
                { "name": "veth1", "mac": "02:00:00:00:00:02" },
                { "name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": "/ns" },
                { "name": "ifb0", "mac": "02:00:00:00:00:04" },
            ],
            "ips": [{ "version": "4", "interface": 2, "address": "10.88.0.2/16" }],
            "routes": [{ "dst": "0.0.0.0/0" }],
        })
    }

    fn observed() -> Observed {
        let seen = |name: &str, last: u8| Seen {
            name: name.into(),
            mac: format!("02:00:00:00:00:{last:02x}"),
        };
        Observed {
            netns: "/ns".into(),
            pod: seen("eth0", 3),
            host: Some(seen("veth1", 2)),
            bridge: Some(seen("sw0", 1)),
            addresses: vec!["10.88.0.2/16".parse().unwrap()],
            routes: vec![(
                "0.0.0.0/0".parse().unwrap(),
                Some("10.88.0.1".parse().unwrap()),
            )],
        }
    }

    fn difference(result: Value, observed: &Observed) -> Option<String> {
        let previous: PreviousResult = serde_json::from_value(result).unwrap();
        previous.difference(&["sw0".to_owned()], observed)
    }

    #[test]
    fn a_pod_as_its_result_says_has_no_difference() {
        assert_eq!(difference(result(), &observed()), None);
    }

    #[test]
    fn each_difference_is_named() {
        let with = |pointer: &str, value: Value| {
            let mut result = result();
            *result.pointer_mut(pointer).unwrap() = value;
            difference(result, &observed()).unwrap()
        };
        let mac = json!("02:00:00:00:00:09");
        assert!(with("/interfaces/0/mac", mac.clone()).contains("sw0 has the hardware"));
        assert!(with("/interfaces/1/mac", mac.clone()).contains("veth1 has the hardware"));
        assert!(with("/interfaces/2/mac", mac).contains("eth0 has the hardware"));
        assert!(with("/interfaces/1/name", json!("x")).contains("no veth1"));
        assert!(with("/interfaces/2/sandbox", json!("/other")).contains("no eth0 in /ns"));
        assert!(with("/ips/0/address", json!("10.88.0.3/16")).contains("10.88.0.3/16"));
        assert!(with("/routes/0/dst", json!("10.0.0.0/8")).contains("10.0.0.0/8"));
        let moved = Observed {
            bridge: None,
            ..observed()
        };
        assert!(
            difference(result(), &moved)
                .unwrap()
                .contains("no port of sw0")
        );
    }
}
