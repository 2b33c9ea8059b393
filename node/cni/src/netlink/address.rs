//! Addresses of links.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NetlinkSocket, Request};
use crate::error::NetworkError;

/// Longest prefix of a subnet that has a broadcast address (RFC 3021).
const BROADCAST_PREFIX_MAX: u8 = 30;

/// `ip address add <address> dev <index>`
pub(crate) fn add(step: &'static str, index: u32, address: Ipv4Net) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message
        .attributes
        .push(AddressAttribute::Local(IpAddr::V4(address.addr())));
    message
        .attributes
        .push(AddressAttribute::Address(IpAddr::V4(address.addr())));
    if address.prefix_len() <= BROADCAST_PREFIX_MAX {
        message
            .attributes
            .push(AddressAttribute::Broadcast(address.broadcast()));
    }
    let message = RouteNetlinkMessage::NewAddress(message);
    Request {
        step,
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

/// `ip -4 address show dev <index>`
pub(crate) fn list(socket: &mut NetlinkSocket, index: u32) -> Result<Vec<Ipv4Net>, NetworkError> {
    let mut query = AddressMessage::default();
    query.header.family = AddressFamily::Inet;
    let messages = socket.dump("list addresses", RouteNetlinkMessage::GetAddress(query))?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
                let address = local(&message.attributes)?;
                Ipv4Net::new(address, message.header.prefix_len).ok()
            }
            _ => None,
        })
        .collect())
}

fn local(attributes: &[AddressAttribute]) -> Option<Ipv4Addr> {
    attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
        _ => None,
    })
}
