//! Masquerading of pod traffic that leaves the pod networks, by nftables over netlink.
//!
//! One table of our own, replaced as a whole in one transaction whenever the set of networks
//! changes or somebody has flushed it: nothing to reconcile, nothing to leak, and idempotent by
//! construction.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use crate::error::NetworkError;
use crate::netlink::nft::{self, Address, Chain, Compare, Hook, Transaction};
use crate::netlink::socket::NetlinkSocket;

/// The chain inside the table.
const CHAIN: &str = "postrouting";

/// Multicast keeps its source, as with the reference plugin.
const MULTICAST: &str = "224.0.0.0/4";

/// The rules in force: one subnet per network and range.
#[derive(Debug)]
pub(crate) struct Masquerade {
    table: String,
    /// Subnets by network name, as last written.
    written: BTreeMap<String, Vec<Ipv4Net>>,
    socket: Option<NetlinkSocket>,
}

impl Masquerade {
    /// Nothing is written yet; what an earlier process wrote is replaced by the first `ensure`.
    pub(crate) fn new(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            written: BTreeMap::new(),
            socket: None,
        }
    }

    /// Makes sure that traffic from `subnets` is masqueraded when it leaves them.
    pub(crate) fn ensure(&mut self, name: &str, subnets: &[Ipv4Net]) -> Result<(), NetworkError> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => NetlinkSocket::netfilter()?,
        };
        let known = self.written.get(name).map(Vec::as_slice);
        // One request of some microseconds; other programs flush rules that are not theirs.
        if known != Some(subnets) || !nft::table_exists(&mut socket, &self.table)? {
            let mut wanted = self.written.clone();
            wanted.insert(name.to_owned(), subnets.to_vec());
            write(&mut socket, &self.table, &wanted)?;
            self.written = wanted;
        }
        // After an error the socket may hold answers that nobody has read: then a new one is used.
        self.socket = Some(socket);
        Ok(())
    }
}

/// Deletes the table; it need not exist.
pub(crate) fn remove(table: &str) -> Result<(), NetworkError> {
    nft::delete_table(&mut NetlinkSocket::netfilter()?, table)
}

fn write(
    socket: &mut NetlinkSocket,
    table: &str,
    wanted: &BTreeMap<String, Vec<Ipv4Net>>,
) -> Result<(), NetworkError> {
    let mut transaction = Transaction::of(table);
    transaction.replace_table();
    transaction.chain(&Chain {
        name: CHAIN,
        hook: Some(Hook::Postrouting),
    });
    for subnets in wanted.values() {
        for source in subnets {
            transaction.rule(CHAIN, &rule(*source, subnets));
        }
    }
    let step = "write the masquerade rules (is nf_tables available?)";
    match transaction.commit(socket, step)? {
        None => Ok(()),
        Some(source) => Err(NetworkError::Kernel { step, source }),
    }
}

/// `ip saddr <source> ip daddr != <inside> … masquerade`
fn rule(source: Ipv4Net, inside: &[Ipv4Net]) -> Vec<Vec<u8>> {
    let multicast = MULTICAST.parse().expect("the constant is a subnet");
    let mut expressions = vec![nft::match_subnet(
        Address::Source,
        Compare::Equal,
        source.trunc(),
    )];
    for inside in inside.iter().chain([&multicast]) {
        let outside = nft::match_subnet(Address::Destination, Compare::Different, *inside);
        expressions.push(outside);
    }
    expressions.push(nft::masquerade());
    expressions
}
