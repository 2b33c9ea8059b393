//! Host ports: packets to a port of the node that go to a pod instead.
//!
//! ```text
//! table ip <table>-hostports, table ip6 <table>-hostports
//!   prerouting, output   for an address of this machine: jump ports
//!   ports                address . protocol . port  ─ map "bound" ─▶ pod . port
//!                        protocol . port            ─ map "any"   ─▶ pod . port
//!   guard                packets for 127.0.0.0/8 that do not come from the node itself are dropped
//!                        (IPv4 alone: the kernel itself drops those for ::1)
//!   postrouting          what was sent on that way and comes from the pod's own network, or from
//!                        127.0.0.0/8, is masqueraded, or the answer would not come back
//! ```
//!
//! A port costs one element in one map of each family of the pod's, however many there are. What is
//! wanted is in a file per sandbox; the tables are made from them at the start, and again when
//! somebody has flushed them. A host port of ::1 leads nowhere: see [`table`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::errno::Errno;

use crate::error::NetworkError;
use crate::masquerade::families;
use crate::netlink::conntrack;
use crate::netlink::nft::{self, Family, Table, Transaction};
use crate::netlink::socket::NetlinkSocket;

mod files;
mod mapping;
mod table;

pub(crate) use mapping::{PortMapping, Ports, Protocol};

/// Where a network's folder is not known yet.
const FOLDER: &str = "hostports";
/// The suffix of the table's name.
const TABLE_SUFFIX: &str = "-hostports";
/// What is done, for errors.
const STEP: &str = "write the host ports (is nf_tables available?)";

/// The host ports of all sandboxes.
#[derive(Debug)]
pub(crate) struct HostPorts {
    table: String,
    folder: Option<PathBuf>,
    /// By container id.
    ports: BTreeMap<String, Ports>,
    /// Sandboxes that an earlier process wrote down.
    adopted: BTreeSet<String>,
    /// Of both families; which tables there are follows from them.
    subnets: BTreeSet<IpNet>,
    /// The tables are as they should be, as far as we know.
    written: bool,
}

impl HostPorts {
    pub(crate) fn new(table: &str) -> Self {
        Self {
            table: table_name(table),
            folder: None,
            ports: BTreeMap::new(),
            adopted: BTreeSet::new(),
            subnets: BTreeSet::new(),
            written: false,
        }
    }

    /// Reads what an earlier process wrote into `data_dir`, and makes the tables from it.
    pub(crate) fn open(&mut self, data_dir: &Path, nets: &[IpNet]) -> Result<(), NetworkError> {
        let known = self.subnets.len();
        self.subnets.extend(nets);
        let folder = data_dir.join(FOLDER);
        if self.folder.as_ref() != Some(&folder) {
            for (container_id, ports) in files::load(&folder)? {
                self.adopted.insert(container_id.clone());
                self.ports.insert(container_id, ports);
            }
            self.folder = Some(folder);
            self.written = false;
            // Without a file no port is anybody's, whatever a table of before says. A kernel
            // without nftables has none.
            if self.ports.is_empty()
                && let Err(error) = crate::masquerade::remove(&self.table)
            {
                tracing::debug!(%error, "no table of host ports to remove");
            }
        }
        self.written &= known == self.subnets.len();
        // A node without host ports has no table.
        if self.written || self.ports.is_empty() {
            return Ok(());
        }
        self.write_all(&mut NetlinkSocket::netfilter()?)
    }

    /// Sends the ports to the pod. Repeating it is success; another sandbox's port is an error.
    pub(crate) fn add(
        &mut self,
        container_id: &str,
        addresses: &[IpAddr],
        mappings: &[PortMapping],
    ) -> Result<(), NetworkError> {
        if mappings.is_empty() {
            return Ok(());
        }
        let ports = Ports::new(addresses, mappings);
        if let Some(mapping) = ports.without_way() {
            return Err(NetworkError::Conf {
                field: "runtimeConfig.portMappings".to_owned(),
                reason: format!("the pod has no address of the family of {mapping}"),
            });
        }
        self.refuse_conflicts(container_id, &ports)?;
        if let Some(folder) = &self.folder {
            files::save(folder, container_id, &ports)?;
        }
        let mut socket = NetlinkSocket::netfilter()?;
        self.ports.insert(container_id.to_owned(), ports.clone());
        if self.written && self.all_exist(&mut socket)? {
            let transaction = self.change(|transaction, family| {
                table::add(transaction, family, &ports);
            });
            match transaction.commit(&mut socket, STEP)? {
                None => {}
                // Written before, by a call whose answer was lost: make the table as we know it.
                Some(_) => self.write_all(&mut socket)?,
            }
        } else {
            self.write_all(&mut socket)?;
        }
        forget_flows(&ports);
        Ok(())
    }

    /// Takes a sandbox's ports back; it need not have any.
    pub(crate) fn remove(&mut self, container_id: &str) -> Result<(), NetworkError> {
        let Some(ports) = self.ports.get(container_id).cloned() else {
            return Ok(());
        };
        let mut socket = NetlinkSocket::netfilter()?;
        let transaction = self.change(|transaction, family| {
            table::delete(transaction, family, &ports);
        });
        let refused = transaction.commit(&mut socket, STEP)?;
        // Known no longer only when they lead nowhere: the address will be another pod's.
        self.ports.remove(container_id);
        self.adopted.remove(container_id);
        match refused {
            None => {}
            // Somebody has changed the table: nothing was deleted, so it is made anew without them.
            Some(Errno::ENOENT) => {
                if let Err(error) = self.write_all(&mut socket) {
                    self.ports.insert(container_id.to_owned(), ports);
                    return Err(error);
                }
            }
            Some(source) => {
                self.ports.insert(container_id.to_owned(), ports);
                return Err(NetworkError::Kernel { step: STEP, source });
            }
        }
        forget_flows(&ports);
        match &self.folder {
            Some(folder) => files::remove(folder, container_id),
            None => Ok(()),
        }
    }

    /// The sandboxes that have ports.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.ports.keys().cloned().collect()
    }

    /// Takes back the ports from before the start of sandboxes that are not alive.
    pub(crate) fn retain(&mut self, live: &[&str]) -> Result<usize, NetworkError> {
        let adopted = std::mem::take(&mut self.adopted);
        let dead: Vec<_> = adopted
            .into_iter()
            .filter(|id| !live.contains(&id.as_str()))
            .collect();
        let errors = dead.iter().filter_map(|id| self.remove(id).err());
        NetworkError::collected(errors.collect()).map(|()| dead.len())
    }

    fn refuse_conflicts(&self, container_id: &str, wanted: &Ports) -> Result<(), NetworkError> {
        let others = self.ports.iter().filter(|(id, _)| *id != container_id);
        for (holder, ports) in others {
            let taken = wanted.mappings.iter().find(|wanted| {
                ports
                    .mappings
                    .iter()
                    .any(|held| held.conflicts_with(wanted))
            });
            if let Some(mapping) = taken {
                return Err(NetworkError::HostPortTaken {
                    port: mapping.to_string(),
                    container_id: holder.clone(),
                });
            }
        }
        Ok(())
    }

    fn write_all(&mut self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        let transaction = self.change(|transaction, family| {
            table::make(transaction, family, &self.subnets);
            for ports in self.ports.values() {
                table::add(transaction, family, ports);
            }
        });
        match transaction.commit(socket, STEP)? {
            None => {
                self.written = true;
                Ok(())
            }
            Some(source) => Err(NetworkError::Kernel { step: STEP, source }),
        }
    }

    /// One transaction with a change to the table of each family.
    fn change(&self, each: impl Fn(&mut Transaction<'_>, Family)) -> Transaction<'_> {
        let table = |family| Table {
            family,
            name: &self.table,
        };
        let mut transaction = Transaction::of(table(Family::Ip));
        for family in families(&self.subnets) {
            transaction.turn_to(table(family));
            each(&mut transaction, family);
        }
        transaction
    }

    fn all_exist(&self, socket: &mut NetlinkSocket) -> Result<bool, NetworkError> {
        for family in families(&self.subnets) {
            let name = &self.table;
            if !nft::table_exists(socket, Table { family, name })? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Deletes the tables; they need not exist.
pub(crate) fn delete(table: &str) -> Result<(), NetworkError> {
    crate::masquerade::remove(&table_name(table))
}

fn table_name(table: &str) -> String {
    format!("{table}{TABLE_SUFFIX}")
}

/// Packets of UDP follow the way of the ones before them, for half a minute and more, whatever the
/// rules say by now; so what is known of these ports is forgotten.
fn forget_flows(ports: &Ports) {
    let udp = ports
        .mappings
        .iter()
        .filter(|one| one.protocol == Protocol::Udp);
    let udp: Vec<u16> = udp.map(|one| one.host_port).collect();
    if udp.is_empty() {
        return;
    }
    let families: BTreeSet<_> = ports.addresses.iter().copied().map(Family::of).collect();
    for family in families {
        let forgotten = NetlinkSocket::netfilter()
            .and_then(|mut socket| conntrack::forget_udp(&mut socket, family, &udp));
        match forgotten {
            Ok(flows) => tracing::debug!(?udp, flows, "flows of UDP host ports forgotten"),
            Err(error) => tracing::warn!(?udp, %error, "old flows of UDP host ports may go on"),
        }
    }
}
