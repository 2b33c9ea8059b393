//! The gateway of pods in a VLAN: a veth pair of the host's own, one end a port of the bridge in
//! that VLAN, the other with the gateway's address. The bridge itself stays in the default VLAN.
//!
//! As the reference plugin makes it (`ensureVlanInterface` of plugins/main/bridge/bridge.go), with
//! the same name, so that either program finds what the other made.

use std::os::fd::AsFd;
use std::path::Path;

use swiftlet_sys::netns;

use crate::conf::VlanConf;
use crate::error::NetworkError;
use crate::mac::Mac;
use crate::netlink::link::{self, VethPair};
use crate::netlink::socket::{NetlinkSocket, Request};
use crate::netlink::vlan;

/// The namespace that the calling thread is in.
const OWN_NETNS: &str = "/proc/thread-self/ns/net";

/// The name of the end with the address.
pub(crate) fn name(bridge: &str, vlan: u16) -> String {
    format!("{bridge}.{vlan}")
}

/// The name of the end on the bridge: begins as [`port_prefix`] says.
fn port_name(bridge: &str, vlan: u16) -> String {
    format!("{}{vlan}", port_prefix(bridge))
}

/// How the names of these ports of a bridge begin.
pub(super) fn port_prefix(bridge: &str) -> String {
    format!("{bridge}-")
}

/// Puts a port into its VLANs, in the reference's order: one that leaves the default VLAN does so
/// first.
pub(crate) fn port_requests(index: u32, wanted: &VlanConf) -> Vec<Request> {
    let mut batch = Vec::new();
    if !wanted.keep_default {
        batch.push(vlan::leave_default(index));
    }
    batch.extend(wanted.untagged.map(|vlan| vlan::put_into(index, vlan)));
    batch.extend(
        wanted
            .tagged
            .iter()
            .map(|range| vlan::let_pass(index, range)),
    );
    batch
}

/// Makes the pair, or finds it; says the index and the hardware address of the end with the
/// gateway's address.
pub(super) fn ensure(
    socket: &mut NetlinkSocket,
    (bridge, bridge_index): (&str, u32),
    mtu: Option<u32>,
    wanted: &VlanConf,
    untagged: u16,
) -> Result<(u32, Mac), NetworkError> {
    let (name, port) = (name(bridge, untagged), port_name(bridge, untagged));
    let step = "look up the gateway of the VLAN";
    if let Some(found) = link::find(socket, &name)? {
        // The other end may be the reference's, whose name is by chance; it is found by its number.
        let other = link::list(socket)?
            .into_iter()
            .find(|other| Some(other.index) == found.peer);
        if other.is_some_and(|other| other.master == Some(bridge_index)) {
            let mac = found.mac.ok_or(NetworkError::Answer { step })?;
            super::refuse_routers(&name);
            return Ok((found.index, mac));
        }
        // Of a bridge that is gone.
        super::delete_link(socket, found.index)?;
    }
    let here = netns::open(Path::new(OWN_NETNS))?;
    let mac = Mac::random();
    socket.batch(vec![link::create_veth(&VethPair {
        host_name: &port,
        host_mac: Mac::random(),
        bridge_index,
        pod_name: &name,
        pod_mac: mac,
        pod_netns: here.as_fd(),
        mtu,
    })])?;
    let mut index = |name: &str| {
        let found = link::find(socket, name)?;
        let found = found.ok_or(NetworkError::Answer { step })?;
        Ok::<_, NetworkError>(found.index)
    };
    let (index, port) = (index(&name)?, index(&port)?);
    // It has the host's address, so no router in the VLAN may change the host's routes.
    super::refuse_routers(&name);
    let only_untagged = VlanConf {
        tagged: Vec::new(),
        ..wanted.clone()
    };
    let mut batch = port_requests(port, &only_untagged);
    batch.push(link::set_up("bring up the gateway of the VLAN", index));
    socket.batch(batch)?;
    Ok((index, mac))
}
