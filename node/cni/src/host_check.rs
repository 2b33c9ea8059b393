//! What a node lacks for pod networks, or loses by them: for its start and its doctor.

use std::fs;

use crate::error::NetworkError;
use crate::netlink::nft::{self, Family, Table};
use crate::netlink::socket::NetlinkSocket;
use crate::netlink::{link, route};
use crate::options::DEFAULT_NFT_TABLE;

/// `accept_ra` of an interface that listens to routers until the host forwards packets itself
/// (Documentation/networking/ip-sysctl.rst).
const UNLESS_FORWARDING: &str = "1";

/// Whether the kernel has nftables, which masquerading, host ports and `macspoofchk` are made of.
///
/// # Errors
/// With what the kernel said, if it has not.
pub fn nftables() -> Result<(), NetworkError> {
    let table = Table {
        family: Family::Ip,
        name: DEFAULT_NFT_TABLE,
    };
    nft::table_exists(&mut NetlinkSocket::netfilter()?, table).map(drop)
}

/// The interfaces whose default route the host has from a router and loses with the first pod of
/// IPv6: then it forwards IPv6, and the kernel drops such routes unless `accept_ra` is 2.
pub fn routes_to_lose() -> Result<Vec<String>, NetworkError> {
    let mut socket = NetlinkSocket::route()?;
    let indices = route::advertised_defaults(&mut socket)?;
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    let links = link::list(&mut socket)?.into_iter();
    let names = links.filter(|link| indices.contains(&link.index));
    Ok(names
        .map(|link| link.name)
        .filter(|name| accept_ra(name) == UNLESS_FORWARDING)
        .collect())
}

/// Says in the log which routes the host is about to lose, and how it keeps them.
pub(crate) fn warn_of_routes_to_lose() {
    match routes_to_lose() {
        Ok(interfaces) if interfaces.is_empty() => {}
        Ok(interfaces) => tracing::warn!(
            ?interfaces,
            "the host loses its default route of IPv6, which a router has advertised there, when \
             the first pod makes it forward IPv6: set net.ipv6.conf.<interface>.accept_ra=2"
        ),
        Err(error) => tracing::debug!(%error, "advertised routes are not looked at"),
    }
}

fn accept_ra(interface: &str) -> String {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/accept_ra");
    // An interface that is gone, or has no IPv6, loses nothing.
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}
