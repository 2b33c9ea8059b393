//! The bridge on the host: made, or adopted if it fits.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::errno::Errno;

use crate::conf::VlanConf;
use crate::error::NetworkError;
use crate::mac::Mac;
use crate::netlink::address;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::NetlinkSocket;
use crate::netlink::vlan;
use crate::sysctl;

pub(crate) mod vlan_gateway;

/// Whether the host routes between its interfaces. Per network namespace.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// The same for IPv6. A host that routes does not listen to router advertisements any more, unless
/// `accept_ra` of the interface is 2 (Documentation/networking/ip-sysctl.rst).
const IPV6_FORWARD: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// Interfaces of one bridge at most (`BR_MAX_PORTS`, net/bridge/br_private.h; port 0 is none).
pub(crate) const PORTS_MAX: usize = 1023;

/// What a bridge must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeSpec {
    pub(crate) name: String,
    /// The bridge's own addresses; none if it is no gateway.
    pub(crate) gateways: Vec<IpNet>,
    pub(crate) mtu: Option<u32>,
    pub(crate) promiscuous: bool,
    /// Whether an address of another network gives way.
    pub(crate) force_address: bool,
    pub(crate) vlan: VlanConf,
}

/// A bridge that is as its spec says.
#[derive(Clone, Debug)]
pub(crate) struct Bridge {
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    /// Addresses that the bridge had before and that pods must not get.
    pub(crate) foreign: Vec<IpAddr>,
    /// The interface that has the gateway's addresses: the bridge, or the gateway of a VLAN.
    pub(crate) gateway: (String, Mac),
}

/// Makes the bridge so, or finds it so.
///
/// # Errors
/// [`NetworkError::BridgeTaken`] if it exists with an address outside of the network's subnets.
pub(crate) fn ensure(
    socket: &mut NetlinkSocket,
    spec: &BridgeSpec,
) -> Result<Bridge, NetworkError> {
    let (index, mac) = match link::find(socket, &spec.name)? {
        Some(found) => adopt(socket, &found)?,
        None => create(socket, spec)?,
    };
    refuse_routers(&spec.name);
    if spec.vlan.is_wanted() {
        socket.batch(vec![vlan::filter(index)])?;
    }
    let (at, gateway) = gateway(socket, spec, index, mac)?;
    let mut addresses = address::list(socket, at)?;
    let others = giving_way(spec, &addresses);
    if !others.is_empty() {
        let deletions = others.iter().map(|other| address::delete(at, *other));
        socket.batch(deletions.collect())?;
        // With the first address of a subnet its others may have gone (`promote_secondaries`).
        addresses = address::list(socket, at)?;
    }
    let missing = missing_addresses(spec, &addresses)?;
    let mut batch = vec![link::set_up("bring up the bridge", index)];
    if spec.promiscuous {
        batch.push(link::set_promiscuous(index));
    }
    for missing in missing {
        batch.push(address::add("give the bridge its address", at, missing));
    }
    let has = |v4: bool| spec.gateways.iter().any(|one| one.addr().is_ipv4() == v4);
    if has(false) {
        // Otherwise the kernel refuses the address.
        let disabled = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", gateway.0);
        sysctl::set(Path::new(&disabled), "0")?;
    }
    socket.batch(batch)?;
    if has(true) {
        switch_on(Path::new(IP_FORWARD))?;
    }
    if has(false) {
        switch_on(Path::new(IPV6_FORWARD))?;
    }
    let foreign = addresses.iter().map(IpNet::addr);
    let is_foreign = |addr: &IpAddr| !spec.gateways.iter().any(|gateway| gateway.addr() == *addr);
    Ok(Bridge {
        index,
        mac,
        foreign: foreign.filter(is_foreign).collect(),
        gateway,
    })
}

/// The host's routes are its own: no router on the bridge may change them. Without IPv6 there is
/// no such file.
fn refuse_routers(name: &str) {
    let accept_ra = format!("/proc/sys/net/ipv6/conf/{name}/accept_ra");
    if let Err(error) = sysctl::set(accept_ra.as_ref(), "0") {
        tracing::debug!(%error, accept_ra, "router advertisements stay as they are");
    }
}

/// The interface that has, or is to have, the gateway's addresses: its index, name and hardware
/// address.
fn gateway(
    socket: &mut NetlinkSocket,
    spec: &BridgeSpec,
    index: u32,
    mac: Mac,
) -> Result<(u32, (String, Mac)), NetworkError> {
    match spec.vlan.untagged {
        Some(untagged) if !spec.gateways.is_empty() => {
            let bridge = (spec.name.as_str(), index);
            let (index, mac) =
                vlan_gateway::ensure(socket, bridge, spec.mtu, &spec.vlan, untagged)?;
            Ok((index, (vlan_gateway::name(&spec.name, untagged), mac)))
        }
        _ => Ok((index, (spec.name.clone(), mac))),
    }
}

/// Deletes the bridge and the veths on it, if this program made it.
pub(crate) fn delete(socket: &mut NetlinkSocket, name: &str) -> Result<(), NetworkError> {
    let Some(bridge) = link::find(socket, name)?.filter(|bridge| bridge.is_own) else {
        return Ok(());
    };
    let ports = link::list(socket)?.into_iter().filter(|port| {
        let is_ours = ["veth", &vlan_gateway::port_prefix(name)]
            .iter()
            .any(|prefix| port.name.starts_with(prefix));
        port.master == Some(bridge.index) && port.is_veth && is_ours
    });
    let mut errors = Vec::new();
    for index in ports.map(|port| port.index).chain([bridge.index]) {
        errors.extend(delete_link(socket, index).err());
    }
    NetworkError::collected(errors)
}

/// Deletes a link. One that is gone is success: the kernel closes a pod's namespace in the
/// background, and the veth goes with it.
pub(crate) fn delete_link(socket: &mut NetlinkSocket, index: u32) -> Result<(), NetworkError> {
    match socket.batch(vec![link::delete(index)]) {
        Err(NetworkError::Kernel {
            source: Errno::ENODEV,
            ..
        }) => Ok(()),
        other => other.map(drop),
    }
}

/// Lets packets from 127.0.0.1 leave by the bridge: to pods, once their source is rewritten.
pub(crate) fn route_localnet(name: &str) -> Result<(), NetworkError> {
    switch_on(&PathBuf::from(format!(
        "/proc/sys/net/ipv4/conf/{name}/route_localnet"
    )))
}

fn create(socket: &mut NetlinkSocket, spec: &BridgeSpec) -> Result<(u32, Mac), NetworkError> {
    let mac = Mac::random();
    socket.batch(vec![
        link::create_bridge(&spec.name, mac, spec.mtu),
        link::mark_as_own(&spec.name),
    ])?;
    let found = link::find(socket, &spec.name)?;
    let step = "look up the new bridge";
    found
        .map(|bridge| (bridge.index, mac))
        .ok_or(NetworkError::Answer { step })
}

fn adopt(socket: &mut NetlinkSocket, found: &Link) -> Result<(u32, Mac), NetworkError> {
    let mac = match found.mac {
        Some(mac) if found.is_bridge => mac,
        _ => return Err(NetworkError::NotABridge(found.name.clone())),
    };
    socket.batch(vec![link::set_mac(found.index, mac)])?;
    Ok((found.index, mac))
}

/// The addresses that the bridge lacks. Pure.
fn missing_addresses(spec: &BridgeSpec, present: &[IpNet]) -> Result<Vec<IpNet>, NetworkError> {
    for wanted in &spec.gateways {
        if let Some(found) = taken_by(spec, present, wanted) {
            return Err(NetworkError::BridgeTaken {
                bridge: spec.name.clone(),
                found,
                wanted: *wanted,
            });
        }
    }
    let missing = spec.gateways.iter().filter(|one| !present.contains(one));
    Ok(missing.copied().collect())
}

/// With `forceAddress`: the addresses that are removed, in IPv4 all but ours, in IPv6 those whose
/// subnet overlaps with ours (`ensureAddr` of the reference's bridge.go).
fn giving_way(spec: &BridgeSpec, present: &[IpNet]) -> Vec<IpNet> {
    let in_the_way = |found: &&IpNet| {
        let mut gateways = spec.gateways.iter();
        !spec.gateways.contains(found)
            && gateways.any(|ours| match (ours, found) {
                (IpNet::V4(_), IpNet::V4(_)) => true,
                _ => found.contains(&ours.addr()) || ours.contains(&found.addr()),
            })
    };
    let others = present.iter().filter(|_| spec.force_address);
    others.filter(in_the_way).copied().collect()
}

/// The address that shows that the bridge is another network's. In IPv4 any that is of none of
/// ours, if ours has none there; in IPv6 an interface has several anyhow, so only one whose subnet
/// overlaps with ours (`ensureAddr` of the reference's bridge.go).
fn taken_by(spec: &BridgeSpec, present: &[IpNet], wanted: &IpNet) -> Option<IpNet> {
    let same_family = |found: &&IpNet| found.addr().is_ipv4() == wanted.addr().is_ipv4();
    let fits = |found: &IpNet| {
        spec.gateways
            .iter()
            .any(|ours| ours.trunc() == found.trunc())
    };
    let mut others = present
        .iter()
        .filter(same_family)
        .filter(|found| !fits(found));
    if wanted.addr().is_ipv4() {
        let is_ours = present.iter().filter(same_family).any(fits);
        return others.next().filter(|_| !is_ours).copied();
    }
    others
        .find(|found| found.contains(&wanted.addr()) || wanted.contains(&found.addr()))
        .copied()
}

/// Sets a sysctl to 1.
fn switch_on(path: &Path) -> Result<(), NetworkError> {
    sysctl::set(path, "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn spec() -> BridgeSpec {
        BridgeSpec {
            name: "sw0".into(),
            gateways: vec![net("10.88.0.1/16"), net("fd00::1/64")],
            mtu: None,
            promiscuous: false,
            force_address: false,
            vlan: VlanConf {
                untagged: None,
                tagged: Vec::new(),
                keep_default: true,
            },
        }
    }

    fn missing(present: &[&str]) -> Result<Vec<IpNet>, NetworkError> {
        let present: Vec<_> = present.iter().map(|text| net(text)).collect();
        missing_addresses(&spec(), &present)
    }

    #[test]
    fn a_bridge_with_an_address_in_the_subnet_is_adopted() {
        let (four, six) = (net("10.88.0.1/16"), net("fd00::1/64"));
        assert_eq!(missing(&[]).unwrap(), [four, six]);
        assert_eq!(missing(&["10.88.0.1/16", "fd00::1/64"]).unwrap(), []);
        assert_eq!(missing(&["10.88.9.9/16"]).unwrap(), [four, six]);
        assert_eq!(missing(&["10.88.0.1/16", "fd00::9/64"]).unwrap(), [six]);
        assert_eq!(missing(&["10.88.0.1/16", "10.1.0.1/24"]).unwrap(), [six]);
        // Another address of IPv6 does no harm.
        assert_eq!(missing(&["fd01::1/64"]).unwrap(), [four, six]);
    }

    #[test]
    fn other_addresses_give_way_by_force_alone() {
        let present = [
            "10.88.0.1/16",
            "10.88.0.9/16",
            "10.1.0.1/24",
            "fd00::9/48",
            "fd01::1/64",
        ];
        let present = present.map(net);
        assert_eq!(giving_way(&spec(), &present), []);
        let spec = BridgeSpec {
            force_address: true,
            ..spec()
        };
        assert_eq!(giving_way(&spec, &present), present[1..4]);
    }

    #[test]
    fn a_bridge_of_another_subnet_is_refused_with_both_addresses() {
        let taken = [
            ("10.1.0.1/24", "10.88.0.1/16"),
            ("fd00::9/48", "fd00::1/64"),
            ("fd00::9/80", "fd00::1/64"),
        ];
        for (found, wanted) in taken {
            let error = missing(&[found]).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains(wanted), "{error}");
        }
    }
}
