//! Taking a pod's network away: at DEL, when nobody reads the answer to ADD, and at GC.

use std::collections::HashSet;
use std::net::IpAddr;

use super::restrictions::Port;
use super::{Network, data_dir, names};
use crate::bridge;
use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::ipam::allocator::Holder;
use crate::ipam::{Retain, store};
use crate::netlink::link;
use crate::netlink::socket::NetlinkSocket;
use crate::request::Attachment;

impl Network {
    /// DEL: host ports, what bounds the pod, its address; the pair goes with the namespace. Each is
    /// tried, whatever fails.
    pub(super) fn detach(
        &self,
        host: &mut NetlinkSocket,
        conf: &NetworkConf,
        holder: &Holder,
    ) -> Result<(), NetworkError> {
        let opened = self.host_ports(conf).map(drop);
        let ports = self.lock_host_ports().remove(&holder.container_id);
        let bounds = self.restrictions.remove(host, Port { conf, holder });
        // The ports first: the address may be another pod's a moment later.
        let address = if self.reachable().contains(&holder.container_id) {
            Ok(())
        } else {
            let pool = self.pool_to_release(conf);
            pool.and_then(|pool| pool.release(holder)).map(drop)
        };
        let all = [opened, ports, bounds, address];
        NetworkError::collected(all.into_iter().filter_map(Result::err).collect())
    }

    /// Undoes an ADD of which nobody has read the answer. The namespace may live on, so the pair is
    /// deleted here: its address will be another pod's.
    pub(crate) fn undo_add(
        &self,
        host: &mut NetlinkSocket,
        attachment: &Attachment,
        conf: &[u8],
    ) -> Result<(), NetworkError> {
        let conf = NetworkConf::parse_to_remove(conf)?;
        delete_pair(host, &attachment.holder)?;
        self.detach(host, &conf, &attachment.holder)
    }

    /// GC. Goes on after a failure.
    pub(super) fn collect_garbage(&self, conf: &NetworkConf) -> Result<Vec<u8>, NetworkError> {
        let valid = |holder: &Holder| {
            conf.valid_attachments
                .iter()
                .any(|(id, ifname)| *id == holder.container_id && *ifname == holder.ifname)
        };
        let mut errors = Vec::new();
        errors.extend(self.restrictions.collect_garbage(conf).err());
        errors.extend(self.host_ports(conf).map(drop).err());
        match self.pool(conf) {
            Ok(pool) => {
                // The ports first: the addresses may be other pods' a moment later.
                let (stuck, failures) = self.close_ports_to(&pool.held_by(|one| !valid(one)));
                errors.extend(failures);
                let wanted = |holder: &Holder| valid(holder) || stuck.contains(holder);
                match pool.retain(wanted, Retain::All) {
                    Ok(freed) => {
                        let network = &conf.name;
                        tracing::info!(network, freed, "addresses without an attachment freed");
                    }
                    Err(error) => errors.push(error),
                }
            }
            Err(error) => errors.push(error),
        }
        NetworkError::collected(errors).map(|()| Vec::new())
    }

    /// Closes the host ports that lead to these addresses of these holders. Says to whom they still
    /// lead, and why.
    fn close_ports_to(&self, held: &[(IpAddr, Holder)]) -> (HashSet<Holder>, Vec<NetworkError>) {
        let mut stuck = HashSet::new();
        let mut errors = Vec::new();
        for (address, holder) in held {
            let mut ports = self.lock_host_ports();
            // Those of the container's other networks stay open.
            if ports.leads_to(&holder.container_id, *address)
                && let Err(error) = ports.remove(&holder.container_id)
            {
                stuck.insert(holder.clone());
                errors.push(error);
            }
        }
        (stuck, errors)
    }

    /// A second interface of the same name, in another network or from before the ranges changed,
    /// is refused before anything is made: the two would have one pair.
    pub(super) fn refuse_attached(&self, holder: &Holder) -> Result<(), NetworkError> {
        let pools = self.open_pools();
        let address = pools.iter().find_map(|pool| pool.address_of(holder));
        address.map_or(Ok(()), |address| Err(already_attached(holder, address)))
    }

    /// The same in networks that nobody has asked for since the start. Their files are read only
    /// when a pair is in the way.
    pub(super) fn refuse_held_on_disk(
        &self,
        conf: &NetworkConf,
        holder: &Holder,
    ) -> Result<(), NetworkError> {
        let others = store::load_others(&data_dir(conf), &self.pool_folders())?;
        let mut others = others.into_iter();
        match others.find(|(_, other)| other == holder) {
            Some((address, _)) => Err(already_attached(holder, address)),
            None => Ok(()),
        }
    }
}

/// Deletes the holder's pair if it exists.
pub(super) fn delete_pair(host: &mut NetlinkSocket, holder: &Holder) -> Result<bool, NetworkError> {
    match link::find(host, &names::host_veth(holder))? {
        Some(found) if found.is_veth => {
            bridge::delete_link(host, found.index)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn already_attached(holder: &Holder, address: IpAddr) -> NetworkError {
    NetworkError::AlreadyAttached {
        container_id: holder.container_id.clone(),
        address,
    }
}
