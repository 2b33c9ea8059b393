//! nftables: transactions of changes to tables.
//!
//! Written by hand because the crates that have these messages bring a hundred more. Numbers and
//! layouts: include/uapi/linux/netfilter/nf_tables.h. Netfilter's integers are big-endian, the
//! registers' contents are the packet's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nix::errno::Errno;

use super::socket::NetlinkSocket;
use crate::error::NetworkError;

mod attribute;
mod contents;
mod expression;
mod object;

#[cfg(test)]
pub(crate) use attribute::attribute;
pub(crate) use attribute::{find, nested};
use contents::Contents;
pub(crate) use contents::comments;
pub(crate) use expression::*;
pub(crate) use object::*;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_NEWSET: u16 = 9;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_GETSETELEM: u16 = 13;
const NFT_MSG_DELSETELEM: u16 = 14;

pub(super) const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK: u16 = 0x4;
pub(super) const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

const NFPROTO_UNSPEC: u8 = 0;

/// Whose packets a table sees (`enum` of include/uapi/linux/netfilter.h, `NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// IPv4.
    Ip = 2,
    /// Frames that go through a bridge.
    Bridge = 7,
    /// IPv6.
    Ip6 = 10,
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ip,
            IpAddr::V6(_) => Self::Ip6,
        }
    }

    /// In front of a message to this family.
    pub(super) fn header(self) -> GenericHeader {
        GenericHeader {
            family: self as u8,
            resource: 0,
        }
    }
}

/// A table; each family has names of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) family: Family,
    pub(crate) name: &'a str,
}

/// Changes that happen all at once, or not at all: at no moment is there a packet that sees half
/// of them.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    table: Table<'a>,
    changes: Vec<Change>,
    maps: u32,
    /// Of the tables that are made anew.
    contents: BTreeMap<(Family, &'a str), Contents>,
}

#[derive(Debug)]
struct Change {
    family: Family,
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl<'a> Transaction<'a> {
    /// Changes to a table.
    pub(crate) fn of(table: Table<'a>) -> Self {
        Self {
            table,
            changes: Vec::new(),
            maps: 0,
            contents: BTreeMap::new(),
        }
    }

    /// Goes on with another table, in the same transaction.
    pub(crate) fn turn_to(&mut self, table: Table<'a>) {
        self.table = table;
        self.maps = 0;
    }

    /// Makes the table anew, empty.
    pub(crate) fn replace_table(&mut self) {
        // Created first, so that deleting it cannot fail; deleted, so that old rules go.
        self.push(NFT_MSG_NEWTABLE, NLM_F_CREATE, table_name(self.table.name));
        self.delete_table();
        *self.contents() = Contents::default();
        self.push(NFT_MSG_NEWTABLE, NLM_F_CREATE, table_name(self.table.name));
    }

    /// Deletes the table with all in it.
    pub(crate) fn delete_table(&mut self) {
        self.push(NFT_MSG_DELTABLE, 0, table_name(self.table.name));
    }

    /// Makes a chain.
    pub(crate) fn chain(&mut self, chain: &Chain<'_>) {
        self.push(NFT_MSG_NEWCHAIN, NLM_F_CREATE, chain.body(self.table.name));
    }

    /// Appends a rule to a chain.
    pub(crate) fn rule(&mut self, chain: &str, expressions: &[Vec<u8>]) {
        let body = rule(self.table.name, chain, &expressions.concat(), None);
        self.push_rule(body);
    }

    /// Appends a rule that says what it is for.
    pub(crate) fn rule_with_comment(
        &mut self,
        chain: &str,
        expressions: &[Vec<u8>],
        comment: &str,
    ) {
        let body = rule(self.table.name, chain, &expressions.concat(), Some(comment));
        self.push_rule(body);
    }

    fn push_rule(&mut self, body: Vec<u8>) {
        self.contents().rules += 1;
        self.push(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, body);
    }

    /// Makes a map, or a set.
    pub(crate) fn map(&mut self, map: &Map<'_>) {
        self.maps += 1;
        let body = map.body(self.table.name, self.maps);
        let elements = &mut self.contents().elements;
        elements.insert(map.name.to_owned(), BTreeMap::new());
        self.push(NFT_MSG_NEWSET, NLM_F_CREATE, body);
    }

    /// Adds an element to a map, or to a set, where it has no value.
    pub(crate) fn add_element(&mut self, map: &str, key: &[u8], value: Option<&[u8]>) {
        let body = element(self.table.name, map, key, value);
        if let Some(elements) = self.contents().elements.get_mut(map) {
            elements.insert(key.to_vec(), value.unwrap_or_default().to_vec());
        }
        self.push(NFT_MSG_NEWSETELEM, NLM_F_CREATE, body);
    }

    /// Deletes an element of a map or set.
    pub(crate) fn delete_element(&mut self, map: &str, key: &[u8]) {
        let body = element(self.table.name, map, key, None);
        self.push(NFT_MSG_DELSETELEM, 0, body);
    }

    /// Whether the tables that this makes anew are there already, with the same in them.
    pub(crate) fn is_in_force(&self, socket: &mut NetlinkSocket) -> Result<bool, NetworkError> {
        for ((family, name), contents) in &self.contents {
            let (family, name) = (*family, *name);
            if !contents.are_in(socket, Table { family, name })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn contents(&mut self) -> &mut Contents {
        let Table { family, name } = self.table;
        self.contents.entry((family, name)).or_default()
    }

    /// Carries all out. `Some` is the reason why nothing of it was done.
    pub(crate) fn commit(
        self,
        socket: &mut NetlinkSocket,
        step: &'static str,
    ) -> Result<Option<Errno>, NetworkError> {
        let mut bytes = Vec::new();
        let border = GenericHeader {
            family: NFPROTO_UNSPEC,
            resource: NFNL_SUBSYS_NFTABLES,
        };
        let (begin, end) = (NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END);
        let first = message(socket, &mut bytes, begin, NLM_F_REQUEST, border, &[]);
        let (mut last, count) = (first, self.changes.len());
        for (index, change) in self.changes.iter().enumerate() {
            // What is refused is told without being asked for.
            let ack = if index + 1 == count { NLM_F_ACK } else { 0 };
            let (kind, flags) = (of_nftables(change.kind), NLM_F_REQUEST | ack | change.flags);
            let header = change.family.header();
            last = message(socket, &mut bytes, kind, flags, header, &change.body);
        }
        message(socket, &mut bytes, end, NLM_F_REQUEST, border, &[]);
        if count == 0 {
            return Ok(None);
        }
        let refusals = socket.exchange_transaction(&bytes, first, last, step)?;
        Ok(refusals.first().map(|(_, errno)| *errno))
    }

    fn push(&mut self, kind: u16, flags: u16, body: Vec<u8>) {
        self.changes.push(Change {
            family: self.table.family,
            kind,
            flags,
            body,
        });
    }
}

/// Whether a table is there: others may flush the whole ruleset.
pub(crate) fn table_exists(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
) -> Result<bool, NetworkError> {
    let body = table_name(table.name);
    exists(socket, table, "look for the table", NFT_MSG_GETTABLE, &body)
}

/// Whether a set or map has a key.
pub(crate) fn element_exists(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
    set: &str,
    key: &[u8],
) -> Result<bool, NetworkError> {
    let body = element(table.name, set, key, None);
    exists(
        socket,
        table,
        "look for an element of a set",
        NFT_MSG_GETSETELEM,
        &body,
    )
}

fn exists(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
    step: &'static str,
    kind: u16,
    body: &[u8],
) -> Result<bool, NetworkError> {
    let (kind, flags) = (of_nftables(kind), NLM_F_REQUEST | NLM_F_ACK);
    let mut bytes = Vec::new();
    message(socket, &mut bytes, kind, flags, table.family.header(), body);
    let refusals = socket.exchange(&bytes, 1, step)?;
    match refusals.first() {
        None => Ok(true),
        Some((_, Errno::ENOENT)) => Ok(false),
        Some((_, source)) => Err(NetworkError::Kernel {
            step,
            source: *source,
        }),
    }
}

/// Deletes a table with all in it; it need not exist.
pub(crate) fn delete_table(
    socket: &mut NetlinkSocket,
    table: Table<'_>,
) -> Result<(), NetworkError> {
    let step = "delete the node's rules";
    let mut transaction = Transaction::of(table);
    transaction.delete_table();
    match transaction.commit(socket, step)? {
        // The last is of a kernel without nftables, which has no table.
        None | Some(Errno::ENOENT | Errno::EOPNOTSUPP) => Ok(()),
        Some(source) => Err(NetworkError::Kernel { step, source }),
    }
}

/// `struct nfgenmsg` without its version.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenericHeader {
    pub(super) family: u8,
    pub(super) resource: u16,
}

/// Appends one message of netfilter, and answers its sequence number.
pub(super) fn message(
    socket: &mut NetlinkSocket,
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    header: GenericHeader,
    body: &[u8],
) -> u32 {
    const HEADERS_BYTES: usize = 16 + 4;
    let length = u32::try_from(HEADERS_BYTES + body.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    let sequence = socket.next_sequence();
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]); // port: the kernel's
    bytes.extend_from_slice(&[header.family, 0]); // 0 = NFNETLINK_V0
    bytes.extend_from_slice(&header.resource.to_be_bytes());
    bytes.extend_from_slice(body);
    sequence
}

fn of_nftables(kind: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | kind
}
