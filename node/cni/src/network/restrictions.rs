//! What bounds a pod: its VLANs, the source of its frames, its bandwidth. Put on the host's end of
//! its pair before the pod's end comes up, taken off by DEL and by what looks for the dead.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::names;
use crate::bandwidth;
use crate::bridge::vlan_gateway;
use crate::conf::{NetworkConf, VlanConf};
use crate::error::NetworkError;
use crate::ipam::allocator::Holder;
use crate::mac::Mac;
use crate::mac_spoof::{self, MacSpoof};
use crate::mark::{Mark, Marked, Origin};
use crate::netlink::link;
use crate::netlink::socket::NetlinkSocket;

/// What bounds the pods of all networks.
///
/// A mutex, as for the host ports: a pod that is bounded holds it for one request of netfilter, one
/// that is not for a look into a map.
#[derive(Debug)]
pub(super) struct Restrictions {
    table: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mac_spoof: MacSpoof,
    /// The devices of limits of egress.
    ifbs: Marked,
    /// What an earlier process left has been looked up.
    opened: bool,
}

/// The host's end of a pod's pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port<'a> {
    pub(super) conf: &'a NetworkConf,
    pub(super) holder: &'a Holder,
}

impl Restrictions {
    pub(super) fn new(table: &str) -> Self {
        let state = State {
            mac_spoof: MacSpoof::new(table),
            ifbs: Marked::default(),
            opened: false,
        };
        Self {
            table: table.to_owned(),
            state: Mutex::new(state),
        }
    }

    /// Bounds the pod, and says which device was made for it, if there is one. What was done when
    /// a step fails goes with [`Self::remove`] and the pair.
    pub(super) fn add(
        &self,
        socket: &mut NetlinkSocket,
        port: Port<'_>,
        pod_mac: Mac,
    ) -> Result<Option<(String, Mac)>, NetworkError> {
        let wanted = &port.conf.restrictions;
        let name = port.name();
        if wanted.vlan.is_wanted() {
            put_into_vlans(socket, &name, &wanted.vlan)?;
        }
        if wanted.mac_spoof {
            let mark = port.mark(Some(pod_mac));
            socket.batch(vec![link::set_alias(&name, &mark.alias())])?;
            self.open(socket)?.mac_spoof.add(&name, mark)?;
        }
        let limits = wanted.bandwidth;
        if limits != bandwidth::Bandwidth::default() {
            let (ifb, mark) = (port.ifb(), port.mark(None));
            let alias = mark.alias();
            if limits.egress.is_some() {
                self.open(socket)?.ifbs.insert(&ifb, mark);
            }
            let device = bandwidth::limit(socket, limits, &name, &ifb, &alias)?;
            return Ok(device.map(|mac| (ifb, mac)));
        }
        Ok(None)
    }

    /// Takes off what outlives the pair; it need not be there.
    pub(super) fn remove(
        &self,
        socket: &mut NetlinkSocket,
        port: Port<'_>,
    ) -> Result<(), NetworkError> {
        let guard = self.open(socket)?.mac_spoof.remove(&port.name());
        // Asked of the kernel, not of the map: the reference plugin may have made it.
        let device = self.delete_ifb(socket, &port.ifb());
        let errors = [guard, device].into_iter().filter_map(Result::err);
        NetworkError::collected(errors.collect())
    }

    /// What is missing, in words.
    pub(super) fn missing(
        &self,
        socket: &mut NetlinkSocket,
        port: Port<'_>,
    ) -> Result<Option<String>, NetworkError> {
        let (wanted, name) = (&port.conf.restrictions, port.name());
        if wanted.mac_spoof && !self.open(socket)?.mac_spoof.is_guarded(&name)? {
            return Ok(Some(format!(
                "frames of {name} are not guarded against spoofing"
            )));
        }
        bandwidth::missing(socket, wanted.bandwidth, &name, &port.ifb())
    }

    /// The sandboxes that are bounded by more than their pair.
    pub(super) fn containers(&self) -> Vec<String> {
        let state = self.lock();
        let marks = state.mac_spoof.ports().iter().chain(state.ifbs.iter());
        marks
            .map(|(_, mark)| mark.holder.container_id.clone())
            .collect()
    }

    /// Takes off what the dead left.
    pub(super) fn remove_dead(&self, dead: &HashSet<String>) -> Result<(), NetworkError> {
        self.remove_all(|mark, _| dead.contains(&mark.holder.container_id))
    }

    /// Takes off what an earlier process put on sandboxes that are not alive.
    pub(super) fn reconcile(&self, live: &[&str]) -> Result<(), NetworkError> {
        self.remove_all(|mark, origin| {
            origin == Origin::Adopted && !live.contains(&mark.holder.container_id.as_str())
        })
    }

    /// Takes off what no valid attachment of the network has.
    pub(super) fn collect_garbage(&self, conf: &NetworkConf) -> Result<(), NetworkError> {
        let is_valid = |holder: &Holder| {
            let mut valid = conf.valid_attachments.iter();
            valid.any(|(id, ifname)| *id == holder.container_id && *ifname == holder.ifname)
        };
        self.remove_all(|mark, _| mark.network == conf.name && !is_valid(&mark.holder))
    }

    /// Removes the table and the devices of all pods.
    pub(super) fn teardown(&self) -> Result<(), NetworkError> {
        let devices = self.remove_all(|_, _| true);
        let table = mac_spoof::delete(&self.table);
        let errors = [devices, table].into_iter().filter_map(Result::err);
        NetworkError::collected(errors.collect())
    }

    /// Writes the rules of nftables again if somebody has changed them, and says whether it did.
    pub(super) fn verify(&self, socket: &mut NetlinkSocket) -> Result<bool, NetworkError> {
        self.open(socket)?.mac_spoof.verify()
    }

    /// Finds what an earlier process left, once, by the marks of the links.
    pub(super) fn adopt(&self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        self.open(socket).map(drop)
    }

    fn open(&self, socket: &mut NetlinkSocket) -> Result<MutexGuard<'_, State>, NetworkError> {
        let mut state = self.lock();
        if !state.opened {
            let links = link::list(socket)?;
            let guarded = Marked::adopt(&links, |mark| mark.mac.is_some());
            state.mac_spoof.open(guarded);
            state.ifbs = Marked::adopt(&links, |mark| mark.mac.is_none());
            state.opened = true;
        }
        Ok(state)
    }

    fn remove_all(&self, picked: impl Fn(&Mark, Origin) -> bool) -> Result<(), NetworkError> {
        let mut socket = NetlinkSocket::route()?;
        let mut errors = Vec::new();
        let mut state = self.open(&mut socket)?;
        for port in state.mac_spoof.ports().names(&picked) {
            errors.extend(state.mac_spoof.remove(&port).err());
        }
        let ifbs = state.ifbs.names(&picked);
        drop(state);
        for ifb in ifbs {
            errors.extend(self.delete_ifb(&mut socket, &ifb).err());
        }
        NetworkError::collected(errors)
    }

    /// Without the mutex: to delete a link takes long.
    fn delete_ifb(&self, socket: &mut NetlinkSocket, ifb: &str) -> Result<(), NetworkError> {
        bandwidth::unlimit(socket, ifb)?;
        self.lock().ifbs.remove(ifb);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port<'_> {
    fn name(self) -> String {
        names::host_veth(self.holder)
    }

    fn ifb(self) -> String {
        bandwidth::ifb_name(&self.conf.name, &self.holder.container_id)
    }

    fn mark(self, mac: Option<Mac>) -> Mark {
        Mark {
            holder: self.holder.clone(),
            network: self.conf.name.clone(),
            mac,
        }
    }
}

fn put_into_vlans(
    socket: &mut NetlinkSocket,
    port: &str,
    wanted: &VlanConf,
) -> Result<(), NetworkError> {
    let step = "look up the pod's port";
    let found = link::find(socket, port)?;
    let index = found.ok_or(NetworkError::Answer { step })?.index;
    socket.batch(vlan_gateway::port_requests(index, wanted))
}
