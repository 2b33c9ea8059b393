//! Masquerading of pod traffic that leaves the pod networks, by nftables over netlink.
//!
//! One table of our own per family of addresses, `ip` and `ip6`, replaced as a whole in one
//! transaction whenever the set of networks changes or somebody has flushed it: nothing to
//! reconcile, nothing to leak, and idempotent by construction.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::NetworkError;
use crate::netlink::nft::{self, Address, Chain, Compare, Family, Hook, Table, Transaction};
use crate::netlink::socket::NetlinkSocket;

/// The chain inside the table.
const CHAIN: &str = "postrouting";

/// Multicast keeps its source, as with the reference plugin (pkg/ip/ipmasq_linux.go).
const MULTICAST_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);
/// And that of IPv6.
const MULTICAST_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// The rules in force: one subnet per network and range.
#[derive(Debug)]
pub(crate) struct Masquerade {
    table: String,
    /// Subnets by network name, as last written.
    written: BTreeMap<String, Vec<IpNet>>,
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
    pub(crate) fn ensure(&mut self, name: &str, subnets: &[IpNet]) -> Result<(), NetworkError> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => NetlinkSocket::netfilter()?,
        };
        let known = self.written.get(name).map(Vec::as_slice);
        // Requests of some microseconds; other programs flush rules that are not theirs.
        if known != Some(subnets) || !all_exist(&mut socket, &self.table, &families(subnets))? {
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

/// Deletes the tables; they need not exist.
pub(crate) fn remove(table: &str) -> Result<(), NetworkError> {
    let mut socket = NetlinkSocket::netfilter()?;
    let tables = [Family::Ip, Family::Ip6].map(|family| Table {
        family,
        name: table,
    });
    let errors = tables.map(|table| nft::delete_table(&mut socket, table).err());
    NetworkError::collected(errors.into_iter().flatten().collect())
}

/// Whose tables these subnets need: a kernel without IPv6 is not asked for one.
pub(crate) fn families<'a>(subnets: impl IntoIterator<Item = &'a IpNet>) -> BTreeSet<Family> {
    let families = subnets.into_iter().map(|subnet| Family::of(subnet.addr()));
    families.collect()
}

fn all_exist(
    socket: &mut NetlinkSocket,
    name: &str,
    families: &BTreeSet<Family>,
) -> Result<bool, NetworkError> {
    for family in families {
        let family = *family;
        if !nft::table_exists(socket, Table { family, name })? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write(
    socket: &mut NetlinkSocket,
    name: &str,
    wanted: &BTreeMap<String, Vec<IpNet>>,
) -> Result<(), NetworkError> {
    let table = |family| Table { family, name };
    let mut transaction = Transaction::of(table(Family::Ip));
    for family in families(wanted.values().flatten()) {
        transaction.turn_to(table(family));
        transaction.replace_table();
        transaction.chain(&Chain {
            name: CHAIN,
            hook: Some(Hook::Postrouting),
        });
        for subnets in wanted.values() {
            let of_family = |subnet: &&IpNet| Family::of(subnet.addr()) == family;
            let inside: Vec<IpNet> = subnets.iter().filter(of_family).copied().collect();
            for source in &inside {
                transaction.rule(CHAIN, &rule(*source, &inside));
            }
        }
    }
    let step = "write the masquerade rules (is nf_tables available?)";
    match transaction.commit(socket, step)? {
        None => Ok(()),
        Some(source) => Err(NetworkError::Kernel { step, source }),
    }
}

/// `ip saddr <source> ip daddr != <inside> … masquerade`
fn rule(source: IpNet, inside: &[IpNet]) -> Vec<Vec<u8>> {
    let multicast = match source {
        IpNet::V4(_) => MULTICAST_V4.into(),
        IpNet::V6(_) => MULTICAST_V6.into(),
    };
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
