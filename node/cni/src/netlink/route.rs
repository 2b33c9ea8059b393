//! Routes in the pod's namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::{NetlinkSocket, Request};
use crate::error::NetworkError;
use crate::ipam::Lease;

/// A route on a link, through a gateway of the same family if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) destination: IpNet,
    pub(crate) gateway: Option<IpAddr>,
}

impl Hop {
    /// The same route of a pod; one that names no gateway goes through the pod's.
    pub(crate) fn through(self, lease: &Lease) -> Self {
        let gateway = self.gateway.or(lease.gateway_towards(&self.destination));
        Self { gateway, ..self }
    }
}

/// `ip route add <destination> via <gateway> dev <index>`
pub(crate) fn add(index: u32, hop: Hop) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = super::family(hop.destination.addr());
    message.header.destination_prefix_length = hop.destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if hop.destination.prefix_len() > 0 {
        let network = RouteAddress::from(hop.destination.network());
        message
            .attributes
            .push(RouteAttribute::Destination(network));
    }
    let gateway = hop
        .gateway
        .map(|gateway| RouteAttribute::Gateway(gateway.into()));
    message.attributes.extend(gateway);
    message.attributes.push(RouteAttribute::Oif(index));
    let message = RouteNetlinkMessage::NewRoute(message);
    Request {
        step: "add a route in the pod",
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

/// `ip route show dev <index>`, of both families.
pub(crate) fn list(socket: &mut NetlinkSocket, index: u32) -> Result<Vec<Hop>, NetworkError> {
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut query = RouteMessage::default();
        query.header.address_family = family;
        let messages = socket.dump("list routes", RouteNetlinkMessage::GetRoute(query))?;
        let hops = messages.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewRoute(route)
                if route.attributes.contains(&RouteAttribute::Oif(index)) =>
            {
                hop(route)
            }
            _ => None,
        });
        found.extend(hops);
    }
    Ok(found)
}

/// The links of the default routes of IPv6 that routers have advertised.
pub(crate) fn advertised_defaults(socket: &mut NetlinkSocket) -> Result<Vec<u32>, NetworkError> {
    let mut query = RouteMessage::default();
    query.header.address_family = AddressFamily::Inet6;
    let messages = socket.dump("list routes", RouteNetlinkMessage::GetRoute(query))?;
    let links = messages.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route)
            if route.header.protocol == RouteProtocol::Ra
                && route.header.destination_prefix_length == 0 =>
        {
            let mut attributes = route.attributes.iter();
            attributes.find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            })
        }
        _ => None,
    });
    Ok(links.collect())
}

fn hop(route: &RouteMessage) -> Option<Hop> {
    // The kernel leaves out the destination of a default route.
    let mut destination = match route.header.address_family {
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    let mut gateway = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = ip(address),
            _ => (),
        }
    }
    let destination = IpNet::new(destination, route.header.destination_prefix_length).ok()?;
    Some(Hop {
        destination,
        gateway,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
