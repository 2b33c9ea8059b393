//! Masquerading of pod traffic that leaves the pod networks, by nftables over netlink.
//!
//! One table of our own per family of addresses, `ip` and `ip6`, replaced as a whole in one
//! transaction whenever the set of networks changes or somebody has flushed it: nothing to leak,
//! and idempotent by construction. Each rule's comment says which subnet of which network it is
//! for, so that a process that starts again knows the networks that nobody has asked for yet.

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

/// What is done, for errors.
const STEP: &str = "write the masquerade rules (is nf_tables available?)";

/// Subnets by network name.
type Networks = BTreeMap<String, BTreeSet<IpNet>>;

/// The rules in force: one per subnet of a network.
#[derive(Debug)]
pub(crate) struct Masquerade {
    table: String,
    /// As last written.
    written: Networks,
    /// Those of an earlier process that nobody has asked for since.
    adopted: BTreeSet<String>,
    /// The rules of an earlier process have been read.
    opened: bool,
    socket: Option<NetlinkSocket>,
}

impl Masquerade {
    pub(crate) fn new(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            written: Networks::new(),
            adopted: BTreeSet::new(),
            opened: false,
            socket: None,
        }
    }

    /// Makes sure that traffic from `subnets` is masqueraded when it leaves them.
    pub(crate) fn ensure(&mut self, name: &str, subnets: &[IpNet]) -> Result<(), NetworkError> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => NetlinkSocket::netfilter()?,
        };
        let done = self.ensure_by(&mut socket, name, subnets);
        self.socket = Some(socket);
        done
    }

    fn ensure_by(
        &mut self,
        socket: &mut NetlinkSocket,
        name: &str,
        subnets: &[IpNet],
    ) -> Result<(), NetworkError> {
        self.open(socket)?;
        self.adopted.remove(name);
        let subnets: BTreeSet<_> = subnets.iter().map(IpNet::trunc).collect();
        let families = families(&subnets);
        // Requests of some microseconds; other programs flush rules that are not theirs.
        if self.written.get(name) == Some(&subnets) && all_exist(socket, &self.table, &families)? {
            return Ok(());
        }
        let mut wanted = self.written.clone();
        // A network that was given another name is not there twice.
        wanted.retain(|other, held| !self.adopted.contains(other) || !overlap(held, &subnets));
        wanted.insert(name.to_owned(), subnets);
        self.replace(socket, wanted)
    }

    /// Leaves traffic of a network alone from now on; it need not have been masqueraded.
    pub(crate) fn leave(&mut self, name: &str) -> Result<(), NetworkError> {
        if self.opened && !self.written.contains_key(name) {
            return Ok(());
        }
        let mut socket = NetlinkSocket::netfilter()?;
        self.open(&mut socket)?;
        let mut wanted = self.written.clone();
        match wanted.remove(name) {
            None => Ok(()),
            Some(_) => self.replace(&mut socket, wanted),
        }
    }

    /// Writes the tables again if somebody has changed them, and says whether it did.
    pub(crate) fn verify(&mut self) -> Result<bool, NetworkError> {
        if self.written.is_empty() {
            return Ok(false);
        }
        let mut socket = NetlinkSocket::netfilter()?;
        if whole(&self.table, &self.written).is_in_force(&mut socket)? {
            return Ok(false);
        }
        self.replace(&mut socket, self.written.clone())?;
        Ok(true)
    }

    /// Reads, once, what an earlier process wrote.
    fn open(&mut self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        if self.opened {
            return Ok(());
        }
        for family in [Family::Ip, Family::Ip6] {
            let name = &self.table;
            for comment in nft::comments(socket, Table { family, name })? {
                if let Some((name, subnet)) = network_of(&comment) {
                    self.written.entry(name.clone()).or_default().insert(subnet);
                    self.adopted.insert(name);
                }
            }
        }
        self.opened = true;
        Ok(())
    }

    fn replace(
        &mut self,
        socket: &mut NetlinkSocket,
        wanted: Networks,
    ) -> Result<(), NetworkError> {
        let mut transaction = whole(&self.table, &wanted);
        let families = families(wanted.values().flatten());
        for family in [Family::Ip, Family::Ip6] {
            let table = Table {
                family,
                name: &self.table,
            };
            // Of an older conf. A kernel without the family says that it has none.
            if !families.contains(&family) && nft::table_exists(socket, table)? {
                transaction.turn_to(table);
                transaction.delete_table();
            }
        }
        match transaction.commit(socket, STEP)? {
            None => {
                self.written = wanted;
                Ok(())
            }
            Some(source) => Err(NetworkError::Kernel { step: STEP, source }),
        }
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

/// What makes the tables anew.
fn whole<'a>(name: &'a str, wanted: &Networks) -> Transaction<'a> {
    let table = |family| Table { family, name };
    let mut transaction = Transaction::of(table(Family::Ip));
    for family in families(wanted.values().flatten()) {
        transaction.turn_to(table(family));
        transaction.replace_table();
        transaction.chain(&Chain {
            name: CHAIN,
            hook: Some(Hook::Postrouting),
        });
        for (network, subnets) in wanted {
            let of_family = |subnet: &&IpNet| Family::of(subnet.addr()) == family;
            let inside: Vec<IpNet> = subnets.iter().filter(of_family).copied().collect();
            for source in &inside {
                let rule = rule(*source, &inside);
                transaction.rule_with_comment(CHAIN, &rule, &comment(network, source));
            }
        }
    }
    transaction
}

fn comment(network: &str, subnet: &IpNet) -> String {
    format!("{subnet} {network}")
}

/// Reads a rule's comment.
fn network_of(comment: &str) -> Option<(String, IpNet)> {
    let (subnet, network) = comment.split_once(' ')?;
    Some((network.to_owned(), subnet.parse().ok()?))
}

fn overlap(some: &BTreeSet<IpNet>, others: &BTreeSet<IpNet>) -> bool {
    let meet = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
    some.iter()
        .any(|one| others.iter().any(|other| meet(one, other)))
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
