//! The bridge on the host: made, or adopted if it fits.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use nix::errno::Errno;

use crate::error::{NetworkError, file_error};
use crate::mac::Mac;
use crate::netlink::address;
use crate::netlink::link::{self, Link};
use crate::netlink::socket::NetlinkSocket;

/// Whether the host routes between its interfaces. Per network namespace.
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// What a bridge must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeSpec {
    pub(crate) name: String,
    /// The bridge's own addresses; none if it is no gateway.
    pub(crate) gateways: Vec<Ipv4Net>,
    pub(crate) mtu: Option<u32>,
    pub(crate) promiscuous: bool,
}

/// A bridge that is as its spec says.
#[derive(Clone, Debug)]
pub(crate) struct Bridge {
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    /// Addresses that the bridge had before and that pods must not get.
    pub(crate) foreign: Vec<Ipv4Addr>,
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
    let addresses = address::list(socket, index)?;
    let missing = missing_addresses(spec, &addresses)?;
    let mut batch = vec![link::set_up("bring up the bridge", index)];
    if spec.promiscuous {
        batch.push(link::set_promiscuous(index));
    }
    for gateway in missing {
        batch.push(address::add("give the bridge its address", index, gateway));
    }
    socket.batch(batch)?;
    if !spec.gateways.is_empty() {
        switch_on(Path::new(IP_FORWARD))?;
    }
    let foreign = addresses.iter().map(Ipv4Net::addr);
    let is_foreign = |addr: &Ipv4Addr| !spec.gateways.iter().any(|gateway| gateway.addr() == *addr);
    Ok(Bridge {
        index,
        mac,
        foreign: foreign.filter(is_foreign).collect(),
    })
}

/// Deletes the bridge and the veths on it, if this program made it.
pub(crate) fn delete(socket: &mut NetlinkSocket, name: &str) -> Result<(), NetworkError> {
    let Some(bridge) = link::find(socket, name)?.filter(|bridge| bridge.is_own) else {
        return Ok(());
    };
    let ports = link::list(socket)?.into_iter().filter(|port| {
        port.master == Some(bridge.index) && port.is_veth && port.name.starts_with("veth")
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
    // The host's routes are its own: no router on the bridge may change them. Without IPv6 there
    // is no such file.
    let accept_ra = format!("/proc/sys/net/ipv6/conf/{}/accept_ra", spec.name);
    if let Err(error) = fs::write(&accept_ra, "0") {
        tracing::debug!(%error, accept_ra, "router advertisements stay as they are");
    }
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
fn missing_addresses(spec: &BridgeSpec, present: &[Ipv4Net]) -> Result<Vec<Ipv4Net>, NetworkError> {
    let Some(wanted) = spec.gateways.first() else {
        return Ok(Vec::new());
    };
    let fits = |found: &Ipv4Net| {
        spec.gateways
            .iter()
            .any(|gateway| gateway.trunc() == found.trunc())
    };
    match present.iter().find(|found| !fits(found)) {
        Some(found) if !present.iter().any(fits) => Err(NetworkError::BridgeTaken {
            bridge: spec.name.clone(),
            found: *found,
            wanted: *wanted,
        }),
        _ => Ok(spec
            .gateways
            .iter()
            .filter(|gateway| !present.contains(gateway))
            .copied()
            .collect()),
    }
}

/// Sets a sysctl to 1.
fn switch_on(path: &Path) -> Result<(), NetworkError> {
    // Read first: a write, even of the same value, takes the kernel's lock and tells everyone.
    let value = fs::read_to_string(path).map_err(file_error("read", path))?;
    if value.trim() == "1" {
        return Ok(());
    }
    fs::write(path, "1").map_err(file_error("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn spec() -> BridgeSpec {
        let gateways = vec![net("10.88.0.1/16")];
        BridgeSpec {
            name: "sw0".into(),
            gateways,
            mtu: None,
            promiscuous: false,
        }
    }

    #[test]
    fn a_bridge_with_an_address_in_the_subnet_is_adopted() {
        let missing = |present: &[Ipv4Net]| missing_addresses(&spec(), present).unwrap();
        assert_eq!(missing(&[]), [net("10.88.0.1/16")]);
        assert_eq!(missing(&[net("10.88.0.1/16")]), []);
        assert_eq!(missing(&[net("10.88.9.9/16")]), [net("10.88.0.1/16")]);
    }

    #[test]
    fn a_bridge_of_another_subnet_is_refused_with_both_addresses() {
        let error = missing_addresses(&spec(), &[net("10.1.0.1/24")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("10.1.0.1/24") && error.contains("10.88.0.1/16"),
            "{error}"
        );
    }
}
