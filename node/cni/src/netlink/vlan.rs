//! VLANs of a bridge and of its ports. A kernel has them if it was built with
//! `CONFIG_BRIDGE_VLAN_FILTERING`; one without refuses [`filter`].

use std::ops::RangeInclusive;

use netlink_packet_route::link::{
    AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, InfoBridge, InfoData, InfoKind,
    LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::socket::Request;

/// The VLAN that every port of such a bridge is in at first
/// (`br->default_pvid` of net/bridge/br_vlan.c).
const DEFAULT_VLAN: u16 = 1;

/// `ip link set <bridge> type bridge vlan_filtering 1`
pub(crate) fn filter(bridge_index: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = bridge_index;
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bridge),
        LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)])),
    ]));
    Request {
        step: "switch on VLANs of the bridge (has this kernel BRIDGE_VLAN_FILTERING?)",
        flags: 0,
        message: RouteNetlinkMessage::NewLink(link),
    }
}

/// `bridge vlan add dev <port> vid <vlan> pvid untagged`: what comes from the port without a tag is
/// in this VLAN, and what goes there has its tag taken off.
pub(crate) fn put_into(port_index: u32, vlan: u16) -> Request {
    let flags = BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged;
    let message = RouteNetlinkMessage::SetLink(port(port_index, &[(vlan, flags)]));
    request("put the pod into its VLAN", message)
}

/// `bridge vlan add dev <port> vid <first>-<last>`: frames with these tags may pass.
pub(crate) fn let_pass(port_index: u32, vlans: &RangeInclusive<u16>) -> Request {
    let (first, last) = (*vlans.start(), *vlans.end());
    let infos = if first == last {
        vec![(first, BridgeVlanInfoFlags::empty())]
    } else {
        vec![
            (first, BridgeVlanInfoFlags::RangeBegin),
            (last, BridgeVlanInfoFlags::RangeEnd),
        ]
    };
    let message = RouteNetlinkMessage::SetLink(port(port_index, &infos));
    request("let the pod's VLANs pass", message)
}

/// `bridge vlan del dev <port> vid 1`
pub(crate) fn leave_default(port_index: u32) -> Request {
    let flags = BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged;
    let message = RouteNetlinkMessage::DelLink(port(port_index, &[(DEFAULT_VLAN, flags)]));
    request("take the pod out of the default VLAN", message)
}

fn port(index: u32, vlans: &[(u16, BridgeVlanInfoFlags)]) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.interface_family = AddressFamily::Bridge;
    link.header.index = index;
    let infos = vlans.iter().map(|(vid, flags)| {
        AfSpecBridge::VlanInfo(BridgeVlanInfo {
            flags: *flags,
            vid: *vid,
        })
    });
    link.attributes
        .push(LinkAttribute::AfSpecBridge(infos.collect()));
    link
}

fn request(step: &'static str, message: RouteNetlinkMessage) -> Request {
    Request {
        step,
        flags: 0,
        message,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    fn bytes(request: &Request) -> Vec<u8> {
        let mut bytes = vec![0; request.message.buffer_len()];
        request.message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_port_is_put_into_its_vlan_as_the_kernel_reads_it() {
        let request = bytes(&put_into(7, 100));
        // struct ifinfomsg: family AF_BRIDGE, index; then IFLA_AF_SPEC with IFLA_BRIDGE_VLAN_INFO.
        assert_eq!((request[0], request[4]), (7, 7));
        let info = [
            &8_u16.to_ne_bytes()[..],
            &2_u16.to_ne_bytes(),
            &[6, 0, 100, 0],
        ]
        .concat();
        assert!(request.ends_with(&info), "{request:?}");
    }

    #[test]
    fn a_range_of_vlans_has_a_begin_and_an_end() {
        let request = bytes(&let_pass(7, &(10..=12)));
        let ends = [8, 0, 2, 0, 8, 0, 10, 0, 8, 0, 2, 0, 16, 0, 12, 0];
        assert!(request.ends_with(&ends), "{request:?}");
        let one = bytes(&let_pass(7, &(10..=10)));
        assert!(one.ends_with(&[8, 0, 2, 0, 0, 0, 10, 0]), "{one:?}");
    }
}
