//! Routes in the pod's namespace.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NetlinkSocket, Request};
use crate::error::NetworkError;

/// A route through a gateway on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) destination: Ipv4Net,
    pub(crate) gateway: Option<Ipv4Addr>,
}

/// `ip route add <destination> via <gateway> dev <index>`
pub(crate) fn add(index: u32, hop: Hop) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = hop.destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if hop.destination.prefix_len() > 0 {
        let network = RouteAddress::Inet(hop.destination.network());
        message
            .attributes
            .push(RouteAttribute::Destination(network));
    }
    let gateway = hop
        .gateway
        .map(|gateway| RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
    message.attributes.extend(gateway);
    message.attributes.push(RouteAttribute::Oif(index));
    let message = RouteNetlinkMessage::NewRoute(message);
    Request {
        step: "add a route in the pod",
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

/// `ip -4 route show dev <index>`
pub(crate) fn list(socket: &mut NetlinkSocket, index: u32) -> Result<Vec<Hop>, NetworkError> {
    let mut query = RouteMessage::default();
    query.header.address_family = AddressFamily::Inet;
    let messages = socket.dump("list routes", RouteNetlinkMessage::GetRoute(query))?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route)
                if route.attributes.contains(&RouteAttribute::Oif(index)) =>
            {
                hop(route)
            }
            _ => None,
        })
        .collect())
}

fn hop(route: &RouteMessage) -> Option<Hop> {
    let mut destination = Ipv4Addr::UNSPECIFIED;
    let mut gateway = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => destination = *address,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some(*address),
            _ => (),
        }
    }
    let destination = Ipv4Net::new(destination, route.header.destination_prefix_length).ok()?;
    Some(Hop {
        destination,
        gateway,
    })
}
