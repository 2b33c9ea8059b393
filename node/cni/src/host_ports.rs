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
use crate::netlink::nft::{self, Family, Table, Transaction};
use crate::netlink::socket::NetlinkSocket;

mod files;
mod flows;
mod mapping;
mod table;

pub(crate) use flows::{Locked, SharedHostPorts};
pub(crate) use mapping::{PortMapping, Ports, Protocol};

/// The folder of the files, in the network's folder.
const FOLDER: &str = "hostports";
/// The suffix of the table's name.
const TABLE_SUFFIX: &str = "-hostports";
/// What is done, for errors.
const STEP: &str = "write the host ports (is nf_tables available?)";

/// The host ports of all sandboxes.
#[derive(Debug)]
pub(crate) struct HostPorts {
    table: String,
    /// Of the network whose request is served.
    folder: PathBuf,
    /// Whose files have been read.
    folders: BTreeSet<PathBuf>,
    /// By container id.
    ports: BTreeMap<String, Held>,
    /// Sandboxes that an earlier process wrote down.
    adopted: BTreeSet<String>,
    /// Of both families; which tables there are follows from them.
    subnets: BTreeSet<IpNet>,
    /// The tables are as they should be, as far as we know.
    written: bool,
    /// Opened or closed, with flows of before.
    changed: Vec<Ports>,
}

/// A sandbox's ports, and where they are written down.
#[derive(Clone, Debug)]
struct Held {
    ports: Ports,
    folder: PathBuf,
}

impl HostPorts {
    fn new(table: &str) -> Self {
        Self {
            table: table_name(table),
            folder: PathBuf::new(),
            folders: BTreeSet::new(),
            ports: BTreeMap::new(),
            adopted: BTreeSet::new(),
            subnets: BTreeSet::new(),
            written: false,
            changed: Vec::new(),
        }
    }

    /// Turns to a network. Reads what an earlier process wrote into its `data_dir`, once, and makes
    /// the tables from it. That they cannot be made is the misfortune of pods with ports alone:
    /// the others come and go, and so does the node.
    pub(crate) fn open(&mut self, data_dir: &Path, nets: &[IpNet]) -> Result<(), NetworkError> {
        let known = self.subnets.len();
        self.subnets.extend(nets);
        self.folder = data_dir.join(FOLDER);
        if !self.folders.contains(&self.folder) {
            self.adopt(files::load(&self.folder)?);
            self.folders.insert(self.folder.clone());
            self.written = false;
            // Without a file no port is anybody's, whatever a table of before says.
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
        let made = NetlinkSocket::netfilter().and_then(|mut socket| self.write_all(&mut socket));
        if let Err(error) = made {
            tracing::warn!(%error, "the host ports of running pods lead nowhere");
        }
        Ok(())
    }

    /// Takes over what is in files. Of two that have the same port the newer one is right: whoever
    /// wrote it had taken the port from the other, whose file then stayed.
    fn adopt(&mut self, mut files: Vec<files::Found>) {
        files.sort_by_key(|found| std::cmp::Reverse(found.written));
        for found in files {
            let id = found.container_id;
            let conflict = self.refuse_conflicts(&id, &found.ports);
            if let Err(error) = conflict {
                tracing::warn!(container_id = id, %error, "host ports of before are dropped");
                // If it stays, it is dropped again at the next start.
                let removed = files::remove(&self.folder, &id);
                removed.unwrap_or_else(|error| tracing::warn!(%error, "their file stays"));
            } else if !self.ports.contains_key(&id) {
                let (ports, folder) = (found.ports, self.folder.clone());
                self.ports.insert(id.clone(), Held { ports, folder });
                self.adopted.insert(id);
            }
        }
    }

    /// Sends the ports to the pod. Repeating it is success; another sandbox's port is an error.
    /// What an attempt that failed has done goes with [`Self::remove`].
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
        let mut socket = NetlinkSocket::netfilter()?;
        let held = Held {
            ports: ports.clone(),
            folder: self.folder.clone(),
        };
        // Known before there is a file: one that nobody knows of would be there for ever.
        let before = self.ports.insert(container_id.to_owned(), held);
        files::save(&self.folder, container_id, &ports)?;
        let has_others = before.is_some_and(|before| before.ports != ports);
        if self.written && !has_others && self.all_exist(&mut socket)? {
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
        self.changed.push(ports);
        Ok(())
    }

    /// Takes a sandbox's ports back; it need not have any.
    pub(crate) fn remove(&mut self, container_id: &str) -> Result<(), NetworkError> {
        let Some(held) = self.ports.get(container_id).cloned() else {
            // A file that was not read, perhaps: without its sandbox it is nobody's.
            let mut folders = self.folders.iter();
            return folders.try_for_each(|folder| files::remove(folder, container_id));
        };
        // The file first: if it stays, all stays, and the next call finds all.
        files::remove(&held.folder, container_id)?;
        let mut socket = NetlinkSocket::netfilter()?;
        let transaction = self.change(|transaction, family| {
            table::delete(transaction, family, &held.ports);
        });
        let refused = transaction.commit(&mut socket, STEP)?;
        // Known no longer only when they lead nowhere: the address will be another pod's.
        self.ports.remove(container_id);
        let gone = match refused {
            None => Ok(()),
            // Somebody has changed the table: nothing was deleted, so it is made anew without them.
            Some(Errno::ENOENT) => self.write_all(&mut socket),
            Some(source) => Err(NetworkError::Kernel { step: STEP, source }),
        };
        if gone.is_err() {
            self.ports.insert(container_id.to_owned(), held);
            return gone;
        }
        self.adopted.remove(container_id);
        self.changed.push(held.ports);
        Ok(())
    }

    /// Whether a port of the sandbox leads to the address.
    pub(crate) fn leads_to(&self, container_id: &str, address: IpAddr) -> bool {
        let held = self.ports.get(container_id);
        held.is_some_and(|held| held.ports.addresses.contains(&address))
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

    /// Writes the tables again if somebody has changed them, and says whether it did.
    pub(crate) fn verify(&mut self) -> Result<bool, NetworkError> {
        if self.ports.is_empty() {
            return Ok(false);
        }
        let mut socket = NetlinkSocket::netfilter()?;
        if self.written && self.whole().is_in_force(&mut socket)? {
            return Ok(false);
        }
        self.write_all(&mut socket).map(|()| true)
    }

    fn refuse_conflicts(&self, container_id: &str, wanted: &Ports) -> Result<(), NetworkError> {
        let others = self.ports.iter().filter(|(id, _)| *id != container_id);
        for (holder, held) in others {
            let is_taken = |wanted: &&PortMapping| {
                let mut mappings = held.ports.mappings.iter();
                mappings.any(|held| held.conflicts_with(wanted))
            };
            let taken = wanted.mappings.iter().find(is_taken);
            if let Some(mapping) = taken {
                return Err(NetworkError::HostPortTaken {
                    port: mapping.to_string(),
                    container_id: holder.clone(),
                });
            }
        }
        Ok(())
    }

    /// What makes the tables anew.
    fn whole(&self) -> Transaction<'_> {
        self.change(|transaction, family| {
            table::make(transaction, family, &self.subnets);
            for held in self.ports.values() {
                table::add(transaction, family, &held.ports);
            }
        })
    }

    fn write_all(&mut self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        match self.whole().commit(socket, STEP)? {
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
