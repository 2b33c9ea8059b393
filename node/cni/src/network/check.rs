//! CHECK: is the pod attached as ADD left it?

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use swiftlet_sys::netns;

use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::ipam::Lease;
use crate::netlink::link::Link;
use crate::netlink::route::Hop;
use crate::netlink::socket::NetlinkSocket;
use crate::netlink::{address, link, route};
use crate::previous::{Observed, Seen};
use crate::request::Attachment;

/// Compares the lease, and the result of ADD if the runtime kept it, with what is there.
/// `host` is a socket in the host's namespace.
pub(super) fn check(
    host: &mut NetlinkSocket,
    attachment: &Attachment,
    conf: &NetworkConf,
    lease: Option<&Lease>,
) -> Result<(), NetworkError> {
    match difference(host, attachment, conf, lease)? {
        None => Ok(()),
        Some(reason) => Err(NetworkError::Check {
            container_id: attachment.holder.container_id.clone(),
            reason,
        }),
    }
}

fn difference(
    host: &mut NetlinkSocket,
    attachment: &Attachment,
    conf: &NetworkConf,
    lease: Option<&Lease>,
) -> Result<Option<String>, NetworkError> {
    let ifname = &attachment.holder.ifname;
    let Some(lease) = lease else {
        return Ok(Some(format!("no address is reserved for its {ifname}")));
    };
    let netns = attachment.netns.as_deref().unwrap_or(Path::new(""));
    let pod_netns = netns::open(netns)?;
    let mut socket = netns::run_in(pod_netns.as_fd(), NetlinkSocket::route)??;
    let Some(link) = link::find(&mut socket, ifname)? else {
        return Ok(Some(format!("there is no interface {ifname}")));
    };
    if let Some(wrong) = different_link(conf, &link) {
        return Ok(Some(wrong));
    }
    let addresses = address::list(&mut socket, link.index)?;
    let mut wanted = lease.addresses.iter().map(|leased| leased.address);
    if let Some(missing) = wanted.find(|wanted| !addresses.contains(wanted)) {
        return Ok(Some(format!("{ifname} lacks the address {missing}")));
    }
    let routes = route::list(&mut socket, link.index)?;
    let wanted = conf.pod_routes(lease).into_iter();
    // A pod from before the conf had this family never had the route.
    let mut wanted = wanted.filter(|hop| hop.through(lease).gateway.is_some());
    if let Some(missing) = wanted.find(|hop| !routes.contains(&hop.through(lease))) {
        let to = missing.destination;
        return Ok(Some(format!("the route to {to} is missing")));
    }
    if let Some(wrong) = different_sysctl(&pod_netns, conf, ifname)? {
        return Ok(Some(wrong));
    }
    let Some(previous) = &conf.extras.previous else {
        return Ok(None);
    };
    let netns = netns.display().to_string();
    let observed = observe(host, netns, &link, addresses, routes)?;
    Ok(previous.difference(&conf.bridges, &observed))
}

fn different_link(conf: &NetworkConf, link: &Link) -> Option<String> {
    let name = &link.name;
    if !link.up {
        return Some(format!("{name} is down"));
    }
    let other = conf.mtu.is_some() && link.mtu != conf.mtu;
    other.then(|| {
        format!(
            "{name} has the MTU {:?} instead of {:?}",
            link.mtu, conf.mtu
        )
    })
}

fn different_sysctl(
    pod_netns: &OwnedFd,
    conf: &NetworkConf,
    ifname: &str,
) -> Result<Option<String>, NetworkError> {
    let sysctls = &conf.extras.sysctls;
    if sysctls.is_empty() {
        return Ok(None);
    }
    let compare = || {
        let mut found = sysctls.iter().map(|sysctl| sysctl.difference(ifname));
        found.find_map(Result::transpose).transpose()
    };
    netns::run_in(pod_netns.as_fd(), compare)?
}

/// Follows the pair to the host, and from there to the bridge.
fn observe(
    host: &mut NetlinkSocket,
    netns: String,
    pod: &Link,
    addresses: Vec<ipnet::IpNet>,
    routes: Vec<Hop>,
) -> Result<Observed, NetworkError> {
    let mut find = |index: Option<u32>| match index {
        Some(index) => link::find_index(host, index),
        None => Ok(None),
    };
    // A number alone could be another link's by now: both ends must name each other.
    let end = find(pod.peer)?.filter(|end| end.is_veth && end.peer == Some(pod.index));
    let bridge = find(end.as_ref().and_then(|end| end.master))?;
    Ok(Observed {
        netns,
        pod: seen(pod),
        host: end.as_ref().map(seen),
        bridge: bridge.as_ref().map(seen),
        addresses,
        routes: routes
            .iter()
            .map(|hop| (hop.destination, hop.gateway))
            .collect(),
    })
}

fn seen(link: &Link) -> Seen {
    Seen {
        name: link.name.clone(),
        mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
    }
}
