//! Masquerading of pod traffic that leaves the pod networks, by nftables over netlink.
//!
//! One table of our own, replaced as a whole in one transaction whenever the set of networks
//! changes: nothing to reconcile, nothing to leak, and idempotent by construction.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;

use crate::error::NetworkError;
use crate::netlink::nft::{self, MasqueradeRule};
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
}

impl Masquerade {
    /// Nothing is written yet; what an earlier process wrote is replaced by the first `ensure`.
    pub(crate) fn new(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            written: BTreeMap::new(),
        }
    }

    /// Makes sure that traffic from `subnets` is masqueraded when it leaves them.
    pub(crate) fn ensure(&mut self, name: &str, subnets: &[Ipv4Net]) -> Result<(), NetworkError> {
        if self
            .written
            .get(name)
            .is_some_and(|written| written == subnets)
        {
            return Ok(());
        }
        let mut wanted = self.written.clone();
        wanted.insert(name.to_owned(), subnets.to_vec());
        let rules: Vec<_> = wanted.values().flat_map(|subnets| rules(subnets)).collect();
        let mut socket = NetlinkSocket::netfilter()?;
        nft::replace_table(&mut socket, &self.table, CHAIN, &rules)?;
        self.written = wanted;
        Ok(())
    }
}

/// Deletes the table; it need not exist.
pub(crate) fn remove(table: &str) -> Result<(), NetworkError> {
    nft::delete_table(&mut NetlinkSocket::netfilter()?, table)
}

fn rules(subnets: &[Ipv4Net]) -> Vec<MasqueradeRule> {
    let mut inside = subnets.to_vec();
    inside.push(MULTICAST.parse().expect("the constant is a subnet"));
    let rule = |source: &Ipv4Net| MasqueradeRule {
        source: source.trunc(),
        inside: inside.clone(),
    };
    subnets.iter().map(rule).collect()
}
