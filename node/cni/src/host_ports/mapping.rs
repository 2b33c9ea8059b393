//! One host port, and when two of them conflict.

use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::netlink::nft::Part;

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
    /// All addresses of the node if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_ip: Option<Ipv4Addr>,
}

/// The host ports of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// The pod's address.
    pub(crate) address: Ipv4Addr,
    pub(crate) mappings: Vec<PortMapping>,
}

impl Ports {
    /// Of two mappings of one port the first counts: two containers of a pod may name it.
    pub(crate) fn new(address: Ipv4Addr, mappings: &[PortMapping]) -> Self {
        let mut kept: Vec<PortMapping> = Vec::new();
        for mapping in mappings {
            if !kept.iter().any(|one| one.key() == mapping.key()) {
                kept.push(mapping.clone());
            }
        }
        Self {
            address,
            mappings: kept,
        }
    }
}

impl PortMapping {
    /// Kubernetes' rule: the same port and protocol, and the same address or one for all.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = match (self.host_ip, other.host_ip) {
            (Some(mine), Some(theirs)) => mine == theirs,
            _ => true,
        };
        same_address && (self.host_port, self.protocol) == (other.host_port, other.protocol)
    }

    /// The key in the map [`KEY_ANY`] or [`KEY_BOUND`]. Each part takes four bytes.
    pub(super) fn key(&self) -> Vec<u8> {
        let address = self.host_ip.map(|address| address.octets());
        let mut key = address.map(Vec::from).unwrap_or_default();
        key.extend([self.protocol as u8, 0, 0, 0]);
        key.extend(port(self.host_port));
        key
    }

    /// Where it leads.
    pub(super) fn value(&self, pod: Ipv4Addr) -> Vec<u8> {
        [pod.octets(), port(self.container_port)].concat()
    }
}

/// What [`PortMapping::key`] consists of for all addresses.
pub(super) const KEY_ANY: &[Part] = &[Part::Protocol, Part::Port];
/// And for one.
pub(super) const KEY_BOUND: &[Part] = &[Part::Ipv4Address, Part::Protocol, Part::Port];
/// What [`PortMapping::value`] consists of.
pub(super) const VALUE: &[Part] = &[Part::Ipv4Address, Part::Port];

fn port(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.host_ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        };
        write!(f, "{address}:{}/{protocol}", self.host_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(host_ip: Option<[u8; 4]>, host_port: u16, protocol: Protocol) -> PortMapping {
        PortMapping {
            host_port,
            container_port: 80,
            protocol,
            host_ip: host_ip.map(Ipv4Addr::from),
        }
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let all = mapping(None, 8080, Protocol::Tcp);
        let one = mapping(Some([192, 0, 2, 2]), 8080, Protocol::Tcp);
        assert!(all.conflicts_with(&all) && all.conflicts_with(&one) && one.conflicts_with(&all));
        assert!(!one.conflicts_with(&mapping(Some([192, 0, 2, 3]), 8080, Protocol::Tcp)));
        assert!(!all.conflicts_with(&mapping(None, 8080, Protocol::Udp)));
        assert!(!all.conflicts_with(&mapping(None, 8081, Protocol::Tcp)));
    }
}
