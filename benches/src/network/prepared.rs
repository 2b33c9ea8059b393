//! What a pool of prepared veth pairs would gain: a pair that lies ready with one end on the bridge
//! is moved into the pod and renamed, against a pair that one message makes where it belongs.
//!
//! Both then do the same in the pod: look the interface up, bring it up, give it address and route.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{
    AddressFamily as SocketFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use swiftlet_sys::netns;

use super::wait_until_clean;
use crate::stats::Samples;

/// One datagram of answers.
const RECEIVE_BYTES: usize = 32 * 1024;
/// The bridge of the host.
const BRIDGE: &str = "sw0";
/// Its address, the pods' gateway.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);
const PREFIX_LENGTH: u8 = 16;

/// Both ways at one number of pods at once.
pub(super) struct Figure {
    pub(super) created: Samples,
    pub(super) prepared: Samples,
    pub(super) parallel: usize,
}

/// Measures both ways in turns.
pub(super) fn compare(n: usize, parallel: &[usize]) -> Result<Vec<Figure>> {
    let host = netns::create()?;
    let mut netlink = netns::run_in(host.as_fd(), Netlink::open)??;
    netlink.ask(vec![(NLM_F_CREATE, new_bridge())])?;
    let bridge = netlink.index_of(BRIDGE)?;
    netlink.ask(vec![
        (0, up(bridge)),
        (NLM_F_CREATE, address(bridge, GATEWAY)),
    ])?;
    let mut figures = Vec::new();
    for &parallel in parallel {
        let mut figure = Figure {
            created: Samples::new(format!("pair on demand, {parallel} at once")),
            prepared: Samples::new(format!("pair prepared, {parallel} at once")),
            parallel,
        };
        for round in 0..n.div_ceil(parallel) {
            for prepared in [round % 2 == 0, round % 2 == 1] {
                let samples = if prepared {
                    &mut figure.prepared
                } else {
                    &mut figure.created
                };
                for took in batch(&host, bridge, parallel, prepared)? {
                    samples.push(took);
                }
            }
        }
        figures.push(figure);
    }
    Ok(figures)
}

fn batch(host: &OwnedFd, bridge: u32, count: usize, prepared: bool) -> Result<Vec<Duration>> {
    let barrier = Barrier::new(count);
    let took = thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let barrier = &barrier;
                scope.spawn(move || one(host, bridge, number, prepared, barrier))
            })
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|outcome| outcome.map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    });
    wait_until_clean(host)?;
    took
}

fn one(
    host: &OwnedFd,
    bridge: u32,
    number: usize,
    prepared: bool,
    barrier: &Barrier,
) -> Result<Duration> {
    let set_up = || -> Result<_> {
        let mut netlink = netns::run_in(host.as_fd(), Netlink::open)??;
        let pod = netns::create()?;
        let mut ready = None;
        if prepared {
            let (end, peer) = (format!("veth-r{number}"), format!("veth-p{number}"));
            netlink.ask(vec![(
                NLM_F_CREATE | NLM_F_EXCL,
                pair(&end, bridge, &peer, None),
            )])?;
            ready = Some((netlink.index_of(&end)?, netlink.index_of(&peer)?));
        }
        Ok((netlink, pod, ready))
    };
    let ready = set_up();
    // A thread that failed must not keep the others waiting.
    barrier.wait();
    let (mut netlink, pod, ready) = ready?;
    let start = Instant::now();
    let name = format!("veth{number}");
    netlink.ask(if let Some((end, peer)) = ready {
        vec![(0, move_to(peer, &pod)), (0, rename(end, &name))]
    } else {
        let pair = pair(&name, bridge, "eth0", Some(&pod));
        vec![(NLM_F_CREATE | NLM_F_EXCL, pair)]
    })?;
    let mut inside = netns::run_in(pod.as_fd(), Netlink::open)??;
    let eth0 = inside.index_of("eth0")?;
    let own = Ipv4Addr::from(u32::from(GATEWAY) + 1 + u32::try_from(number)?);
    let create = NLM_F_CREATE | NLM_F_EXCL;
    inside.ask(vec![
        (0, up(1)),
        (0, up(eth0)),
        (create, address(eth0, own)),
    ])?;
    inside.ask(vec![(create, default_route(eth0))])?;
    Ok(start.elapsed())
}

/// `ip link add <name> up master <bridge> type veth peer name <peer> [netns <pod>]`
fn pair(name: &str, bridge: u32, peer: &str, pod: Option<&OwnedFd>) -> RouteNetlinkMessage {
    let mut other = LinkMessage::default();
    other
        .attributes
        .push(LinkAttribute::IfName(peer.to_owned()));
    let netns = pod.map(|pod| LinkAttribute::NetNsFd(pod.as_raw_fd()));
    other.attributes.extend(netns);
    let mut link = LinkMessage::default();
    link.header.flags |= LinkFlags::Up;
    link.header.change_mask |= LinkFlags::Up;
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link.attributes.push(LinkAttribute::Controller(bridge));
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
    ]));
    RouteNetlinkMessage::NewLink(link)
}

/// `ip link set <index> netns <pod> name eth0`
fn move_to(index: u32, pod: &OwnedFd) -> RouteNetlinkMessage {
    let mut link = with_index(index);
    link.attributes
        .push(LinkAttribute::NetNsFd(pod.as_raw_fd()));
    link.attributes
        .push(LinkAttribute::IfName("eth0".to_owned()));
    RouteNetlinkMessage::NewLink(link)
}

fn rename(index: u32, name: &str) -> RouteNetlinkMessage {
    let mut link = with_index(index);
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::NewLink(link)
}

fn up(index: u32) -> RouteNetlinkMessage {
    let mut link = with_index(index);
    link.header.flags |= LinkFlags::Up;
    link.header.change_mask |= LinkFlags::Up;
    RouteNetlinkMessage::NewLink(link)
}

fn new_bridge() -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.attributes
        .push(LinkAttribute::IfName(BRIDGE.to_owned()));
    let kind = vec![LinkInfo::Kind(InfoKind::Bridge)];
    link.attributes.push(LinkAttribute::LinkInfo(kind));
    RouteNetlinkMessage::NewLink(link)
}

fn address(index: u32, address: Ipv4Addr) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = PREFIX_LENGTH;
    message.header.index = index;
    let address = IpAddr::V4(address);
    let both = [
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    message.attributes.extend(both);
    RouteNetlinkMessage::NewAddress(message)
}

fn default_route(index: u32) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    let gateway = RouteAttribute::Gateway(RouteAddress::Inet(GATEWAY));
    message
        .attributes
        .extend([gateway, RouteAttribute::Oif(index)]);
    RouteNetlinkMessage::NewRoute(message)
}

fn with_index(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

/// A socket in one namespace.
struct Netlink(OwnedFd);

impl Netlink {
    fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkRoute;
        let (family, kind) = (SocketFamily::Netlink, SockType::Raw);
        Ok(Self(socket(
            family,
            kind,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?))
    }

    /// Sends all requests at once; each must be granted.
    fn ask(&mut self, requests: Vec<(u16, RouteNetlinkMessage)>) -> Result<()> {
        let mut missing = requests.len();
        let requests = requests.into_iter();
        let bytes = requests.flat_map(|(flags, message)| serialize(flags | NLM_F_ACK, message));
        send(
            self.0.as_raw_fd(),
            &bytes.collect::<Vec<u8>>(),
            MsgFlags::empty(),
        )?;
        while missing > 0 {
            for reply in self.receive()? {
                let NetlinkPayload::Error(error) = reply.payload else {
                    bail!("an answer that was not asked for");
                };
                if let Some(code) = error.code {
                    bail!(
                        "the kernel refused: {}",
                        nix::errno::Errno::from_raw(-code.get())
                    );
                }
                missing -= 1;
            }
        }
        Ok(())
    }

    fn index_of(&mut self, name: &str) -> Result<u32> {
        let mut query = LinkMessage::default();
        query
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let bytes = serialize(0, RouteNetlinkMessage::GetLink(query));
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty())?;
        match self.receive()?.pop().context("no answer")?.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                Ok(link.header.index)
            }
            _ => bail!("there is no {name}"),
        }
    }

    fn receive(&mut self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let mut bytes = vec![0; RECEIVE_BYTES];
        let length = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        let (mut rest, mut found) = (&bytes[..length], Vec::new());
        while !rest.is_empty() {
            let reply = NetlinkMessage::deserialize(rest)?;
            let length = usize::try_from(reply.header.length)?.next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            found.push(reply);
        }
        Ok(found)
    }
}

fn serialize(flags: u16, message: RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len().next_multiple_of(4)];
    packet.serialize(&mut bytes);
    bytes
}
