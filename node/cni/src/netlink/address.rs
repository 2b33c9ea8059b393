//! Addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NetlinkSocket, Request};
use crate::error::NetworkError;

/// Longest prefix of a subnet that has a broadcast address (RFC 3021).
const BROADCAST_PREFIX_MAX: u8 = 30;

/// `ip address del <address> dev <index>`
pub(crate) fn delete(index: u32, address: IpNet) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = super::family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    let local = AddressAttribute::Local(address.addr());
    message.attributes.push(local);
    Request {
        step: "take an address from the bridge",
        flags: 0,
        message: RouteNetlinkMessage::DelAddress(message),
    }
}

/// `ip address add <address> dev <index>`, in IPv6 with `nodad`: the address is one of a kind
/// because it is given out from one book, and while the kernel asked around for another of it, for
/// a second, a pod could not use it.
pub(crate) fn add(step: &'static str, index: u32, address: IpNet) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = super::family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message
        .attributes
        .push(AddressAttribute::Local(address.addr()));
    message
        .attributes
        .push(AddressAttribute::Address(address.addr()));
    match address {
        IpNet::V4(address) if address.prefix_len() <= BROADCAST_PREFIX_MAX => {
            let broadcast = AddressAttribute::Broadcast(address.broadcast());
            message.attributes.push(broadcast);
        }
        IpNet::V4(_) => (),
        IpNet::V6(_) => message.header.flags |= AddressHeaderFlags::Nodad,
    }
    let message = RouteNetlinkMessage::NewAddress(message);
    Request {
        step,
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

/// `ip address show dev <index> scope global`: both families, without what IPv6 gives itself.
pub(crate) fn list(socket: &mut NetlinkSocket, index: u32) -> Result<Vec<IpNet>, NetworkError> {
    let mut query = AddressMessage::default();
    query.header.family = AddressFamily::Unspec;
    let messages = socket.dump("list addresses", RouteNetlinkMessage::GetAddress(query))?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                let address = own(&message.attributes).filter(|address| !is_link_local(*address));
                IpNet::new(address?, message.header.prefix_len).ok()
            }
            _ => None,
        })
        .collect())
}

/// The link's own address. The kernel tells one of IPv6 only as the far end's, which is the same.
fn own(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = || {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    };
    local.or_else(any)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
