//! `macspoofchk`: a pod sends frames from its own hardware address, or none.
//!
//! ```text
//! table bridge <table>-macspoof
//!   prerouting   iifname @guarded  iifname . ether saddr != @allowed  drop
//! ```
//!
//! The reference plugin (pkg/link/spoofcheck.go) drops the same frames at the same place, with two
//! chains and four rules per pod; here a pod costs one element in each of two sets. What is wanted
//! is in the aliases of the pods' links (see [`crate::mark`]): from these the table is made at the
//! start, and from memory when somebody has flushed it.

use nix::errno::Errno;

use crate::error::NetworkError;
use crate::mac::Mac;
use crate::mark::{Mark, Marked};
use crate::netlink::nft::{self, Address, Chain, Compare, Family, Hook, Map};
use crate::netlink::nft::{Part, Register, Table, Transaction};
use crate::netlink::socket::NetlinkSocket;

/// The suffix of the table's name.
const TABLE_SUFFIX: &str = "-macspoof";
const CHAIN: &str = "prerouting";
/// The interfaces whose frames are looked at.
const GUARDED: &str = "guarded";
/// Which source an interface may have.
const ALLOWED: &str = "allowed";
/// What is done, for errors.
const STEP: &str = "write the rules against spoofed hardware addresses (is nf_tables available?)";
/// An interface's name in a register (`IFNAMSIZ`, include/uapi/linux/if.h).
const NAME_BYTES: usize = 16;

/// The rules in force.
#[derive(Debug)]
pub(crate) struct MacSpoof {
    table: String,
    ports: Marked,
}

impl MacSpoof {
    pub(crate) fn new(table: &str) -> Self {
        Self {
            table: format!("{table}{TABLE_SUFFIX}"),
            ports: Marked::default(),
        }
    }

    /// Takes over the ports of an earlier process: what is in the table for others goes. A node
    /// that cannot write the table serves all other pods, and [`Self::verify`] tries again.
    pub(crate) fn open(&mut self, ports: Marked) {
        self.ports = ports;
        let written = NetlinkSocket::netfilter().and_then(|mut socket| {
            // A node without such pods has no table.
            if self.is_empty() {
                return nft::delete_table(&mut socket, self.table());
            }
            self.write_all(&mut socket)
        });
        match written {
            Ok(()) => {}
            Err(error) if self.is_empty() => tracing::debug!(%error, "no table to remove"),
            Err(error) => tracing::warn!(%error, "frames of running pods are not guarded"),
        }
    }

    /// Writes the table again if somebody has changed it, and says whether it did.
    pub(crate) fn verify(&self) -> Result<bool, NetworkError> {
        if self.is_empty() {
            return Ok(false);
        }
        let mut socket = NetlinkSocket::netfilter()?;
        if self.whole().is_in_force(&mut socket)? {
            return Ok(false);
        }
        self.write_all(&mut socket).map(|()| true)
    }

    fn is_empty(&self) -> bool {
        self.ports.iter().next().is_none()
    }

    /// Guards a port.
    pub(crate) fn add(&mut self, port: &str, mark: Mark) -> Result<(), NetworkError> {
        let mut socket = NetlinkSocket::netfilter()?;
        let mac = mark.mac;
        self.ports.insert(port, mark);
        if nft::table_exists(&mut socket, self.table())? {
            let mut transaction = Transaction::of(self.table());
            add(&mut transaction, port, mac);
            if transaction.commit(&mut socket, STEP)?.is_none() {
                return Ok(());
            }
        }
        // Flushed, or written before by a call that did not come to its end.
        self.write_all(&mut socket)
    }

    /// Forgets a port; it need not be guarded.
    pub(crate) fn remove(&mut self, port: &str) -> Result<(), NetworkError> {
        let Some(mark) = self.ports.remove(port) else {
            return Ok(());
        };
        let mut socket = NetlinkSocket::netfilter()?;
        let mut transaction = Transaction::of(self.table());
        for (set, key) in elements(port, mark.mac) {
            transaction.delete_element(set, &key);
        }
        let removed = match transaction.commit(&mut socket, STEP)? {
            None => Ok(()),
            // Somebody has changed the table: it is made anew without the port.
            Some(Errno::ENOENT) => self.write_all(&mut socket),
            Some(source) => Err(NetworkError::Kernel { step: STEP, source }),
        };
        if removed.is_err() {
            self.ports.insert(port, mark);
        }
        removed
    }

    /// Whether the kernel knows the port and its address.
    pub(crate) fn is_guarded(&self, port: &str) -> Result<bool, NetworkError> {
        let Some(mark) = self.ports.get(port) else {
            return Ok(false);
        };
        let mut socket = NetlinkSocket::netfilter()?;
        for (set, key) in elements(port, mark.mac) {
            if !nft::element_exists(&mut socket, self.table(), set, &key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn ports(&self) -> &Marked {
        &self.ports
    }

    fn table(&self) -> Table<'_> {
        Table {
            family: Family::Bridge,
            name: &self.table,
        }
    }

    /// What makes the table anew.
    fn whole(&self) -> Transaction<'_> {
        let mut transaction = Transaction::of(self.table());
        make(&mut transaction);
        for (port, mark) in self.ports.iter() {
            add(&mut transaction, port, mark.mac);
        }
        transaction
    }

    fn write_all(&self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        match self.whole().commit(socket, STEP)? {
            None => Ok(()),
            Some(source) => Err(NetworkError::Kernel { step: STEP, source }),
        }
    }
}

/// Deletes the table; it need not exist.
pub(crate) fn delete(table: &str) -> Result<(), NetworkError> {
    let table = MacSpoof::new(table);
    nft::delete_table(&mut NetlinkSocket::netfilter()?, table.table())
}

/// The table without any port.
fn make(transaction: &mut Transaction<'_>) {
    const NAME: Register = Register(0);
    const SOURCE: Register = Register(4);
    transaction.replace_table();
    let sets: [(&str, &[Part]); 2] = [
        (GUARDED, &[Part::InterfaceName]),
        (ALLOWED, &[Part::InterfaceName, Part::HardwareAddress]),
    ];
    for (name, key) in sets {
        let value = &[];
        transaction.map(&Map { name, key, value });
    }
    transaction.chain(&Chain {
        name: CHAIN,
        hook: Some(Hook::Raw),
    });
    let rule = [
        nft::load_interface_name(NAME),
        nft::match_set(GUARDED, NAME, Compare::Equal),
        nft::load_address(Family::Bridge, Address::Source, SOURCE),
        nft::match_set(ALLOWED, NAME, Compare::Different),
        nft::drop_packet(),
    ];
    transaction.rule(CHAIN, &rule);
}

fn add(transaction: &mut Transaction<'_>, port: &str, mac: Option<Mac>) {
    for (set, key) in elements(port, mac) {
        transaction.add_element(set, &key, None);
    }
}

/// What is in the sets for a port.
fn elements(port: &str, mac: Option<Mac>) -> Vec<(&'static str, Vec<u8>)> {
    let mut name = port.as_bytes().to_vec();
    name.resize(NAME_BYTES, 0);
    let allowed = mac.map(|mac| (ALLOWED, [&name[..], &mac.0[..], &[0, 0]].concat()));
    // The allowed source first: in no order is there a moment in which the pod is cut off.
    allowed
        .into_iter()
        .chain([(GUARDED, name.clone())])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_guarded_by_its_name_and_allowed_with_its_address() {
        let [allowed, guarded] = &elements("veth0", Some(Mac([1, 2, 3, 4, 5, 6])))[..] else {
            panic!("one element in each set");
        };
        assert_eq!((allowed.0, allowed.1.len()), (ALLOWED, 24));
        assert_eq!(allowed.1[..5], *b"veth0");
        assert_eq!(allowed.1[16..], [1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!((guarded.0, guarded.1.len()), (GUARDED, 16));
        assert_eq!(guarded.1[..], allowed.1[..16]);
    }
}
