//! One host port, when two of them conflict, and what is in the maps for them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Deserializer, Serialize};

use super::table::{ANY, BOUND};
use crate::netlink::nft::{self, Family, Part};

/// A transport protocol (IANA's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    Tcp = 6,
    Udp = 17,
    Sctp = 132,
}

/// A port of the node that leads to a port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortMapping {
    pub(crate) host_port: u16,
    pub(crate) container_port: u16,
    pub(crate) protocol: Protocol,
    /// All addresses of the node, of both families, if there is none; the unspecified address of a
    /// family means all of that family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_ip: Option<IpAddr>,
}

/// The host ports of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// The pod's addresses: the first of each family counts.
    #[serde(alias = "address", deserialize_with = "one_or_more")]
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mappings: Vec<PortMapping>,
}

/// An element of a map.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) map: &'static str,
    /// Each part fills whole registers.
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Ports {
    pub(crate) fn new(addresses: &[IpAddr], mappings: &[PortMapping]) -> Self {
        Self {
            addresses: addresses.to_vec(),
            mappings: mappings.to_vec(),
        }
    }

    /// What leads to the pod in the maps of a family. Of two mappings of one port the first counts:
    /// two containers of a pod may name it.
    pub(super) fn elements(&self, family: Family) -> Vec<Element> {
        let of_family = |address: &&IpAddr| Family::of(**address) == family;
        let Some(pod) = self.addresses.iter().find(of_family) else {
            return Vec::new();
        };
        let mut elements: Vec<Element> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        for mapping in self.mappings.iter().filter(|one| one.is_for(family)) {
            let (map, key) = mapping.key();
            if keys.insert((map, key.clone())) {
                let mut value = nft::octets(*pod);
                value.extend(port(mapping.container_port));
                elements.push(Element { map, key, value });
            }
        }
        elements
    }

    /// A mapping that could lead nowhere: it is for addresses of a family that the pod lacks.
    pub(super) fn without_way(&self) -> Option<&PortMapping> {
        let has = |family| self.addresses.iter().any(|one| Family::of(*one) == family);
        let served = |mapping: &PortMapping| {
            mapping
                .host_ip
                .is_none_or(|address| has(Family::of(address)))
        };
        self.mappings.iter().find(|mapping| !served(mapping))
    }
}

impl PortMapping {
    /// Kubernetes' rule: the same port and protocol, and the same address or one for all.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = match (self.host_ip, other.host_ip) {
            (Some(mine), Some(theirs)) => {
                let for_all = mine.is_unspecified() || theirs.is_unspecified();
                mine == theirs || for_all && mine.is_ipv4() == theirs.is_ipv4()
            }
            _ => true,
        };
        same_address && (self.host_port, self.protocol) == (other.host_port, other.protocol)
    }

    fn is_for(&self, family: Family) -> bool {
        self.host_ip
            .is_none_or(|address| Family::of(address) == family)
    }

    /// The map, and the key in it.
    fn key(&self) -> (&'static str, Vec<u8>) {
        let bound = self.host_ip.filter(|address| !address.is_unspecified());
        let mut key = bound.map(nft::octets).unwrap_or_default();
        key.extend([self.protocol as u8, 0, 0, 0]);
        key.extend(port(self.host_port));
        (bound.map_or(ANY, |_| BOUND), key)
    }
}

/// What a key in the map [`ANY`] consists of.
pub(super) fn key_any() -> &'static [Part] {
    &[Part::Protocol, Part::Port]
}

/// And in [`BOUND`].
pub(super) fn key_bound(family: Family) -> &'static [Part] {
    match family {
        Family::Ip6 => &[Part::Ipv6Address, Part::Protocol, Part::Port],
        Family::Ip | Family::Bridge => &[Part::Ipv4Address, Part::Protocol, Part::Port],
    }
}

/// What a value consists of.
pub(super) fn value(family: Family) -> &'static [Part] {
    match family {
        Family::Ip6 => &[Part::Ipv6Address, Part::Port],
        Family::Ip | Family::Bridge => &[Part::Ipv4Address, Part::Port],
    }
}

fn port(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

/// A file of before there was IPv6 has one address.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Addresses {
        One(IpAddr),
        More(Vec<IpAddr>),
    }
    Addresses::deserialize(deserializer).map(|addresses| match addresses {
        Addresses::One(address) => vec![address],
        Addresses::More(addresses) => addresses,
    })
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.host_ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        write!(
            f,
            "{}/{protocol}",
            SocketAddr::from((address, self.host_port))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(host_ip: Option<&str>, host_port: u16, protocol: Protocol) -> PortMapping {
        PortMapping {
            host_port,
            container_port: 80,
            protocol,
            host_ip: host_ip.map(|text| text.parse().unwrap()),
        }
    }

    fn tcp(host_ip: Option<&str>) -> PortMapping {
        mapping(host_ip, 8080, Protocol::Tcp)
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let (all, one) = (tcp(None), tcp(Some("192.0.2.2")));
        assert!(all.conflicts_with(&all) && all.conflicts_with(&one) && one.conflicts_with(&all));
        assert!(!one.conflicts_with(&tcp(Some("192.0.2.3"))));
        assert!(!all.conflicts_with(&mapping(None, 8080, Protocol::Udp)));
        assert!(!all.conflicts_with(&mapping(None, 8081, Protocol::Tcp)));
    }

    #[test]
    fn a_port_without_an_address_holds_both_families_and_one_with_an_address_its_own() {
        let (all, four, six) = (tcp(None), tcp(Some("0.0.0.0")), tcp(Some("::")));
        let one = tcp(Some("2001:db8::2"));
        assert!(all.conflicts_with(&four) && all.conflicts_with(&six) && all.conflicts_with(&one));
        assert!(six.conflicts_with(&one) && one.conflicts_with(&six));
        assert!(!four.conflicts_with(&six) && !four.conflicts_with(&one));
        assert_eq!(one.to_string(), "[2001:db8::2]:8080/tcp");
    }

    #[test]
    fn each_family_has_an_element_of_each_port_that_is_for_it() {
        let addresses = ["10.88.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let mappings = [tcp(None), tcp(Some("2001:db8::2")), tcp(Some("::"))];
        let ports = Ports::new(&addresses, &mappings);
        let [four] = &ports.elements(Family::Ip)[..] else {
            panic!("IPv4 has one: {ports:?}");
        };
        assert_eq!(four.key, [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(four.value, [10, 88, 0, 2, 0, 80, 0, 0]);
        let six = ports.elements(Family::Ip6);
        let maps: Vec<_> = six.iter().map(|one| (one.map, one.key.len())).collect();
        assert_eq!(maps, [(ANY, 8), (BOUND, 24)], "the first of each key");
        let only_four = Ports::new(&addresses[..1], &mappings);
        assert_eq!(only_four.without_way(), Some(&mappings[1]));
        assert_eq!(ports.without_way(), None);
    }

    #[test]
    fn files_with_one_address_are_read_too() {
        let old = r#"{"address":"10.88.0.2","mappings":[]}"#;
        let old: Ports = serde_json::from_str(old).unwrap();
        assert_eq!(old, Ports::new(&["10.88.0.2".parse().unwrap()], &[]));
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Ports>(&text).unwrap(), old);
    }
}
