//! Links: bridges, veth pairs, up.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};

use super::socket::{NetlinkSocket, Request};
use crate::error::NetworkError;
use crate::mac::Mac;

/// The mark of a bridge that this program made, so that teardown leaves others alone.
const OWN_ALIAS: &str = "swiftlet";

/// What is asked about a link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Option<Mac>,
    pub(crate) up: bool,
    pub(crate) mtu: Option<u32>,
    pub(crate) is_bridge: bool,
    pub(crate) is_veth: bool,
    /// Made by this program.
    pub(crate) is_own: bool,
    /// What somebody wrote to it.
    pub(crate) alias: Option<String>,
    /// The bridge that the link is a port of.
    pub(crate) master: Option<u32>,
    /// The other end of a veth, in its own namespace.
    pub(crate) peer: Option<u32>,
    /// Number of the namespace that the other end is in; `None` if it is in the same.
    pub(crate) peer_netns: Option<i32>,
}

/// A veth pair: one end on the bridge, the other in the pod.
pub(crate) struct VethPair<'a> {
    pub(crate) host_name: &'a str,
    pub(crate) host_mac: Mac,
    pub(crate) bridge_index: u32,
    pub(crate) pod_name: &'a str,
    pub(crate) pod_mac: Mac,
    pub(crate) pod_netns: BorrowedFd<'a>,
    pub(crate) mtu: Option<u32>,
}

/// `ip link add <host> up master <bridge> type veth peer name <pod> netns <netns>`
///
/// The peer cannot be created up (ENOTCONN).
pub(crate) fn create_veth(pair: &VethPair<'_>) -> Request {
    let mut peer = LinkMessage::default();
    peer.attributes
        .push(LinkAttribute::IfName(pair.pod_name.to_owned()));
    peer.attributes
        .push(LinkAttribute::Address(pair.pod_mac.0.to_vec()));
    peer.attributes
        .push(LinkAttribute::NetNsFd(pair.pod_netns.as_raw_fd()));
    peer.attributes.extend(pair.mtu.map(LinkAttribute::Mtu));

    let mut link = up(LinkMessage::default());
    link.attributes
        .push(LinkAttribute::IfName(pair.host_name.to_owned()));
    link.attributes
        .push(LinkAttribute::Address(pair.host_mac.0.to_vec()));
    link.attributes
        .push(LinkAttribute::Controller(pair.bridge_index));
    link.attributes.extend(pair.mtu.map(LinkAttribute::Mtu));
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    create("create the veth pair", link)
}

/// `ip link set <port> type bridge_slave hairpin on isolated on`, of the two what is wanted.
pub(crate) fn set_port(port: &str, hairpin: bool, isolated: bool) -> Request {
    let mut options = Vec::new();
    options.extend(hairpin.then_some(InfoBridgePort::HairpinMode(true)));
    options.extend(isolated.then_some(InfoBridgePort::Isolated(true)));
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(port.to_owned()));
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(options)),
    ]));
    change("set the bridge port's options", link)
}

/// `ip link add <name> type bridge` with an address of its own, because a bridge otherwise takes
/// its lowest port's and changes it as pods come and go.
pub(crate) fn create_bridge(name: &str, mac: Mac, mtu: Option<u32>) -> Request {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
    link.attributes.extend(mtu.map(LinkAttribute::Mtu));
    link.attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(
            InfoKind::Bridge,
        )]));
    create("create the bridge", link)
}

/// `ip link set <name> alias swiftlet`
pub(crate) fn mark_as_own(name: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link.attributes
        .push(LinkAttribute::IfAlias(OWN_ALIAS.to_owned()));
    change("mark the bridge", link)
}

/// `ip link set <name> alias <text>`
pub(crate) fn set_alias(name: &str, text: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link.attributes
        .push(LinkAttribute::IfAlias(text.to_owned()));
    change("mark the pod's link", link)
}

/// `ip link add <name> up type ifb`: what is sent to it comes in from it.
pub(crate) fn create_ifb(name: &str, mtu: Option<u32>) -> Request {
    let mut link = up(LinkMessage::default());
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link.attributes.extend(mtu.map(LinkAttribute::Mtu));
    let kind = LinkInfo::Kind(InfoKind::Ifb);
    link.attributes.push(LinkAttribute::LinkInfo(vec![kind]));
    create(
        "create the device of the pod's egress limit (is ifb available?)",
        link,
    )
}

/// `ip link set <index> address <mac>`: pins the address that a bridge has.
pub(crate) fn set_mac(index: u32, mac: Mac) -> Request {
    let mut link = with_index(index);
    link.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
    change("pin the bridge's hardware address", link)
}

/// `ip link set <index> promisc on`
pub(crate) fn set_promiscuous(index: u32) -> Request {
    let mut link = with_index(index);
    link.header.flags |= LinkFlags::Promisc;
    link.header.change_mask |= LinkFlags::Promisc;
    change("switch on promiscuous mode", link)
}

/// `ip link set <index> up`
pub(crate) fn set_up(step: &'static str, index: u32) -> Request {
    change(step, up(with_index(index)))
}

/// `ip link del <index>`: 40 ms under the kernel's one lock, so never where pods wait.
pub(crate) fn delete(index: u32) -> Request {
    let message = RouteNetlinkMessage::DelLink(with_index(index));
    Request {
        step: "delete the link",
        flags: 0,
        message,
    }
}

/// `ip link show <name>`
pub(crate) fn find(socket: &mut NetlinkSocket, name: &str) -> Result<Option<Link>, NetworkError> {
    let mut query = LinkMessage::default();
    query
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    look_up(socket, query)
}

/// `ip link show` of the link with this number
pub(crate) fn find_index(
    socket: &mut NetlinkSocket,
    index: u32,
) -> Result<Option<Link>, NetworkError> {
    look_up(socket, with_index(index))
}

fn look_up(socket: &mut NetlinkSocket, query: LinkMessage) -> Result<Option<Link>, NetworkError> {
    match socket.get("look up a link", RouteNetlinkMessage::GetLink(query))? {
        Some(RouteNetlinkMessage::NewLink(message)) => Ok(Some(Link::from(&message))),
        Some(_) => Err(NetworkError::Answer {
            step: "look up a link",
        }),
        None => Ok(None),
    }
}

/// `ip link show`
pub(crate) fn list(socket: &mut NetlinkSocket) -> Result<Vec<Link>, NetworkError> {
    let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let messages = socket.dump("list links", query)?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(Link::from(link)),
            _ => None,
        })
        .collect())
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: None,
            up: message.header.flags.contains(LinkFlags::Up),
            mtu: None,
            is_bridge: false,
            is_veth: false,
            is_own: false,
            alias: None,
            master: None,
            peer: None,
            peer_netns: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(bytes) => link.mac = Mac::from_bytes(bytes),
                LinkAttribute::Mtu(mtu) => link.mtu = Some(*mtu),
                LinkAttribute::IfAlias(alias) => {
                    link.is_own = alias == OWN_ALIAS;
                    link.alias = Some(alias.clone());
                }
                LinkAttribute::Controller(index) => link.master = Some(*index),
                LinkAttribute::Link(index) => link.peer = Some(*index),
                LinkAttribute::LinkNetNsId(id) => link.peer_netns = Some(*id),
                LinkAttribute::LinkInfo(infos) => {
                    link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
                    link.is_veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
                }
                _ => (),
            }
        }
        link
    }
}

fn with_index(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn up(mut link: LinkMessage) -> LinkMessage {
    link.header.flags |= LinkFlags::Up;
    link.header.change_mask |= LinkFlags::Up;
    link
}

fn create(step: &'static str, link: LinkMessage) -> Request {
    let message = RouteNetlinkMessage::NewLink(link);
    Request {
        step,
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

/// Without NLM_F_CREATE this is a change of what exists (RTM_SETLINK refuses port options).
fn change(step: &'static str, link: LinkMessage) -> Request {
    Request {
        step,
        flags: 0,
        message: RouteNetlinkMessage::NewLink(link),
    }
}
