//! Attaching a pod: each phase is a type, and its undoing consumes it.
//!
//! A step that fails undoes all before it. What is left when even that fails is in the error.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use swiftlet_sys::netns;

use super::detach::delete_pair;
use super::restrictions::Port;
use super::{Deadline, Network, bridge_spec, names, pod_ipv6};
use crate::bridge::{self, Bridge};
use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::ipam::{Lease, Pool};
use crate::mac::Mac;
use crate::netlink::address;
use crate::netlink::link::{self, VethPair};
use crate::netlink::route::{self, Hop};
use crate::netlink::socket::NetlinkSocket;
use crate::request::Attachment;
use crate::result::Attached;

/// `lo` is the first interface of every namespace (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LOOPBACK_INDEX: u32 = 1;

/// What every phase needs.
pub(super) struct Host<'a> {
    pub(super) network: &'a Network,
    /// In the host's namespace.
    pub(super) socket: &'a mut NetlinkSocket,
    pub(super) conf: &'a NetworkConf,
    pub(super) attachment: &'a Attachment,
    pub(super) pod_netns: &'a OwnedFd,
}

/// An address is reserved, and written down.
pub(super) struct Reserved<'a> {
    host: Host<'a>,
    pool: &'a Pool,
    lease: Lease,
    /// The pair of the holder's name is ours, as far as there is one.
    made_pair: bool,
}

/// The veth pair exists: one end up on the bridge, the other in the pod.
pub(super) struct Linked<'a> {
    reserved: Reserved<'a>,
    link: PodLink,
}

/// The pod's interfaces are up and have their address.
pub(super) struct Addressed<'a>(Linked<'a>);

/// The pod has its routes: it is attached.
pub(super) struct Routed<'a> {
    linked: Linked<'a>,
    /// As the result shows them.
    routes: Vec<Hop>,
    netns: String,
}

/// The two ends of the pair.
struct PodLink {
    bridge: Bridge,
    host_name: String,
    host_mac: Mac,
    pod_mac: Mac,
    /// In the pod's namespace.
    pod_socket: NetlinkSocket,
    pod_index: u32,
    /// Of the limit of egress.
    device: Option<(String, Mac)>,
}

impl<'a> Reserved<'a> {
    /// Reserves an address.
    pub(super) fn new(host: Host<'a>, pool: &'a Pool, shard: usize) -> Result<Self, NetworkError> {
        // The bridge comes first: one that is adopted may have an address that no pod must get.
        host.network.bridge(host.socket, host.conf, shard, pool)?;
        let lease = pool.reserve(&host.attachment.holder, shard, &host.conf.extras.ips)?;
        Ok(Self {
            host,
            pool,
            lease,
            made_pair: false,
        })
    }

    /// Creates the veth pair.
    pub(super) fn link(mut self) -> Result<Linked<'a>, NetworkError> {
        let mut outcome = self.try_link();
        // Rare: bridges are chosen so that none is ever full.
        for _ in 1..self.host.conf.bridges.len() {
            if !matches!(outcome, Err(NetworkError::BridgeFull { .. })) {
                break;
            }
            outcome = self.move_on().and_then(|()| self.try_link());
        }
        match outcome {
            Ok(link) => Ok(Linked {
                reserved: self,
                link,
            }),
            Err(error) => Err(error.after_undo(self.undo())),
        }
    }

    /// Takes an address of the next bridge instead.
    fn move_on(&mut self) -> Result<(), NetworkError> {
        let Host {
            conf, attachment, ..
        } = &self.host;
        let next = (self.lease.shard + 1) % conf.bridges.len();
        self.pool.release(&attachment.holder)?;
        let lease = self
            .pool
            .reserve(&attachment.holder, next, &conf.extras.ips)?;
        self.lease = lease;
        Ok(())
    }

    /// Frees the address, and the link if one was made.
    fn undo(mut self) -> Result<(), NetworkError> {
        let mut errors = Vec::new();
        let holder = &self.host.attachment.holder;
        // A pair that was there before is a pod's that runs.
        if self.made_pair {
            // Here a link is deleted, slowly: the namespace may be somebody's who tries again.
            errors.extend(delete_pair(self.host.socket, holder).err());
            errors.extend(self.lift_restrictions().err());
        }
        // To an address that ports still lead to the next pod must not come.
        let ports = self.host.network.lock_host_ports();
        let mut ips = self.lease.ips();
        let is_reachable = ips.any(|address| ports.leads_to(&holder.container_id, address));
        drop(ports);
        if !is_reachable {
            errors.extend(self.pool.release(holder).err());
        }
        NetworkError::collected(errors)
    }

    fn try_link(&mut self) -> Result<PodLink, NetworkError> {
        let network = self.host.network;
        network.masquerade(self.host.conf)?;
        let mut bridge = self.bridge()?;
        let mut outcome = self.create_veth(&bridge);
        // Two things can be in the way, and both at once.
        for _ in 0..2 {
            let again = match &outcome {
                // The bridge that we remember is gone: make it again.
                Err(NetworkError::Kernel {
                    source: Errno::EINVAL | Errno::ENODEV,
                    ..
                }) => {
                    let spec = bridge_spec(self.host.conf, self.lease.shard);
                    network.bridges.forget(&spec.name);
                    bridge = self.bridge()?;
                    true
                }
                // If no network has an address for it, a pair of this name is what a DEL left to
                // its namespace, which did not close.
                Err(NetworkError::Kernel {
                    source: Errno::EEXIST,
                    ..
                }) => {
                    let holder = &self.host.attachment.holder;
                    network.refuse_held_on_disk(self.host.conf, holder)?;
                    delete_pair(self.host.socket, holder)?
                }
                _ => false,
            };
            if !again {
                break;
            }
            outcome = self.create_veth(&bridge);
        }
        let is_full = |error: NetworkError| match error {
            NetworkError::Kernel {
                source: Errno::EXFULL,
                ..
            } => NetworkError::BridgeFull {
                bridge: self.host.conf.bridges[self.lease.shard].clone(),
                ports_max: bridge::PORTS_MAX,
            },
            other => other,
        };
        let (host_name, host_mac, pod_mac) = outcome.map_err(is_full)?;
        // Before the pod's end is up: not one frame comes through unbounded.
        let device = self.restrict(pod_mac)?;
        let mut pod_socket = self.enter_pod()?;
        let found = link::find(&mut pod_socket, &self.host.attachment.holder.ifname)?;
        let step = "look up the pod's interface";
        let pod_index = found.ok_or(NetworkError::Answer { step })?.index;
        Ok(PodLink {
            bridge,
            host_name,
            host_mac,
            pod_mac,
            pod_socket,
            pod_index,
            device,
        })
    }

    fn bridge(&mut self) -> Result<Bridge, NetworkError> {
        let Host {
            network,
            socket,
            conf,
            ..
        } = &mut self.host;
        network.bridge(socket, conf, self.lease.shard, self.pool)
    }

    /// A socket in the pod's namespace, which is set up for the addresses that it will have.
    fn enter_pod(&self) -> Result<NetlinkSocket, NetworkError> {
        let has_ipv6 = self.lease.ips().any(|address| address.is_ipv6());
        let ifname = &self.host.attachment.holder.ifname;
        netns::run_in(self.host.pod_netns.as_fd(), || {
            if has_ipv6 {
                pod_ipv6::switch_on(ifname)?;
            }
            pod_ipv6::refuse_routers(ifname)?;
            NetlinkSocket::route()
        })?
    }

    fn create_veth(&mut self, bridge: &Bridge) -> Result<(String, Mac, Mac), NetworkError> {
        let host_name = names::host_veth(&self.host.attachment.holder);
        let host_mac = Mac::random();
        let of_addresses = || Mac::of_addresses(self.lease.ips()).unwrap_or_else(Mac::random);
        let pod_mac = self.host.conf.extras.mac.unwrap_or_else(of_addresses);
        let mut batch = vec![link::create_veth(&VethPair {
            host_name: &host_name,
            host_mac,
            bridge_index: bridge.index,
            pod_name: &self.host.attachment.holder.ifname,
            pod_mac,
            pod_netns: self.host.pod_netns.as_fd(),
            mtu: self.host.conf.mtu,
        })];
        let (hairpin, isolated) = (self.host.conf.hairpin, self.host.conf.extras.port_isolation);
        if hairpin || isolated {
            batch.push(link::set_port(&host_name, hairpin, isolated));
        }
        let made = self.host.socket.batch(batch);
        self.made_pair |= !matches!(
            made,
            Err(NetworkError::Kernel {
                source: Errno::EEXIST,
                ..
            })
        );
        made.map(|()| (host_name, host_mac, pod_mac))
    }

    fn restrict(&mut self, pod_mac: Mac) -> Result<Option<(String, Mac)>, NetworkError> {
        let (network, port) = (self.host.network, self.port());
        network.restrictions.add(self.host.socket, port, pod_mac)
    }

    fn lift_restrictions(&mut self) -> Result<(), NetworkError> {
        let (network, port) = (self.host.network, self.port());
        network.restrictions.remove(self.host.socket, port)
    }

    fn port(&self) -> Port<'a> {
        Port {
            conf: self.host.conf,
            holder: &self.host.attachment.holder,
        }
    }
}

impl<'a> Linked<'a> {
    /// Brings both interfaces up and gives the pod its address, in one batch.
    pub(super) fn address(mut self) -> Result<Addressed<'a>, NetworkError> {
        let index = self.link.pod_index;
        let mut batch = vec![
            link::set_up("bring up lo in the pod", LOOPBACK_INDEX),
            link::set_up("bring up the pod's interface", index),
        ];
        for leased in &self.reserved.lease.addresses {
            let step = "give the pod its address";
            batch.push(address::add(step, index, leased.address));
        }
        match self.link.pod_socket.batch(batch) {
            Ok(()) => Ok(Addressed(self)),
            Err(error) => Err(error.after_undo(self.undo())),
        }
    }

    /// The deadline, at the border between two phases.
    pub(super) fn within(self, deadline: Deadline) -> Result<Self, NetworkError> {
        match deadline.check() {
            Ok(()) => Ok(self),
            Err(error) => Err(error.after_undo(self.undo())),
        }
    }

    fn undo(self) -> Result<(), NetworkError> {
        // Address and routes go with the link.
        self.reserved.undo()
    }
}

impl<'a> Addressed<'a> {
    /// Adds the pod's routes.
    pub(super) fn route(self) -> Result<Routed<'a>, NetworkError> {
        let Self(mut linked) = self;
        let Host {
            conf, attachment, ..
        } = &linked.reserved.host;
        let lease = &linked.reserved.lease;
        let routes = conf.pod_routes(lease);
        let netns = attachment
            .netns
            .as_deref()
            .map(|path| path.display().to_string());
        let through = |hop: &Hop| route::add(linked.link.pod_index, hop.through(lease));
        let requests: Vec<_> = routes.iter().map(through).collect();
        if !requests.is_empty()
            && let Err(error) = linked.link.pod_socket.batch(requests)
        {
            return Err(error.after_undo(linked.undo()));
        }
        Ok(Routed {
            linked,
            routes,
            netns: netns.unwrap_or_default(),
        })
    }

    /// The deadline, at the border between two phases.
    pub(super) fn within(self, deadline: Deadline) -> Result<Self, NetworkError> {
        self.0.within(deadline).map(Self)
    }
}

impl Routed<'_> {
    /// Sets the sysctls of the pod's namespace that the conf asks for.
    pub(super) fn tune(self) -> Result<Self, NetworkError> {
        let host = &self.linked.reserved.host;
        let sysctls = &host.conf.extras.sysctls;
        if sysctls.is_empty() {
            return Ok(self);
        }
        let ifname = &host.attachment.holder.ifname;
        let set_all = || sysctls.iter().try_for_each(|sysctl| sysctl.apply(ifname));
        let set = netns::run_in(host.pod_netns.as_fd(), set_all);
        match set.map_err(NetworkError::from).flatten() {
            Ok(()) => Ok(self),
            Err(error) => Err(error.after_undo(self.linked.undo())),
        }
    }

    /// Opens the pod's host ports, if it has any.
    pub(super) fn open_ports(self) -> Result<Self, NetworkError> {
        match self.try_open_ports() {
            Ok(()) => Ok(self),
            Err(error) => Err(error.after_undo(self.linked.undo())),
        }
    }

    fn try_open_ports(&self) -> Result<(), NetworkError> {
        let Host {
            network,
            conf,
            attachment,
            ..
        } = &self.linked.reserved.host;
        if conf.ports.is_empty() {
            return Ok(());
        }
        // Without this a packet from 127.0.0.1 never leaves to a pod.
        bridge::route_localnet(&self.linked.link.bridge.gateway.0)?;
        let id = &attachment.holder.container_id;
        let mut host_ports = network.host_ports(conf)?;
        let opened = host_ports.add(id, &self.ips(), &conf.ports);
        opened.map_err(|error| error.after_undo(host_ports.remove(id)))
    }

    /// What was done, for the result.
    pub(super) fn attached(&self) -> Attached<'_> {
        let Linked { reserved, link } = &self.linked;
        let Host {
            conf, attachment, ..
        } = &reserved.host;
        Attached {
            bridge: (&conf.bridges[reserved.lease.shard], link.bridge.mac),
            host: (&link.host_name, link.host_mac),
            pod: (&attachment.holder.ifname, link.pod_mac),
            others: self.other_interfaces(),
            netns: &self.netns,
            mtu: conf.mtu,
            lease: &reserved.lease,
            routes: &self.routes,
            dns: &conf.dns,
        }
    }

    /// Made for the pod, or for its VLAN.
    fn other_interfaces(&self) -> Vec<(&str, Mac)> {
        let link = &self.linked.link;
        let (gateway, mac) = &link.bridge.gateway;
        let bridge = &self.linked.reserved.host.conf.bridges[self.linked.reserved.lease.shard];
        let gateway = (gateway != bridge).then_some((gateway.as_str(), *mac));
        let device = link.device.as_ref();
        let device = device.map(|(name, mac)| (name.as_str(), *mac));
        gateway.into_iter().chain(device).collect()
    }

    /// The pod's addresses.
    pub(super) fn ips(&self) -> Vec<IpAddr> {
        self.linked.reserved.lease.ips().collect()
    }
}
