//! CHECK: is the pod attached as ADD left it?

use std::os::fd::AsFd;
use std::path::Path;

use swiftlet_sys::netns;

use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::ipam::Lease;
use crate::netlink::route::Hop;
use crate::netlink::socket::NetlinkSocket;
use crate::netlink::{address, link, route};
use crate::request::Attachment;

/// Compares the lease with what is in the pod's namespace.
pub(super) fn check(
    attachment: &Attachment,
    conf: &NetworkConf,
    lease: Option<&Lease>,
) -> Result<(), NetworkError> {
    let ifname = &attachment.holder.ifname;
    let fail = |reason: String| {
        let container_id = attachment.holder.container_id.clone();
        Err(NetworkError::Check {
            container_id,
            reason,
        })
    };
    let Some(lease) = lease else {
        return fail(format!("no address is reserved for its {ifname}"));
    };
    let pod_netns = netns::open(attachment.netns.as_deref().unwrap_or(Path::new("")))?;
    let mut socket = netns::run_in(pod_netns.as_fd(), NetlinkSocket::route)??;
    let Some(link) = link::find(&mut socket, ifname)? else {
        return fail(format!("there is no interface {ifname}"));
    };
    if !link.up {
        return fail(format!("{ifname} is down"));
    }
    if conf.mtu.is_some() && link.mtu != conf.mtu {
        return fail(format!(
            "{ifname} has the MTU {:?} instead of {:?}",
            link.mtu, conf.mtu
        ));
    }
    if !address::list(&mut socket, link.index)?.contains(&lease.address) {
        return fail(format!("{ifname} lacks the address {}", lease.address));
    }
    let present = route::list(&mut socket, link.index)?;
    for hop in conf.pod_routes(lease.gateway) {
        let wanted = Hop {
            gateway: hop.gateway.or(Some(lease.gateway)),
            ..hop
        };
        if !present.contains(&wanted) {
            return fail(format!("the route to {} is missing", wanted.destination));
        }
    }
    Ok(())
}
