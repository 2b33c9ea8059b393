//! Netlink: one function, one kernel request.
//!
//! [`socket`] sends batches and collects the answers; [`link`], [`address`] and [`route`] build
//! messages for rtnetlink, [`nft`] and [`conntrack`] for netfilter. A batch is one `send`: the
//! kernel works through it in order and has all answers ready when `send` returns.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;

pub(crate) mod address;
pub(crate) mod conntrack;
pub(crate) mod link;
pub(crate) mod nft;
pub(crate) mod nsid;
pub(crate) mod qdisc;
pub(crate) mod route;
pub(crate) mod socket;
pub(crate) mod vlan;

/// The kernel's word for an address' family.
fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
