//! nftables messages: a transaction that replaces one table.
//!
//! Written by hand because the crates that have these expressions bring a hundred more. Numbers
//! and layouts: include/uapi/linux/netfilter/nf_tables.h. Netfilter's integers are big-endian.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use nix::errno::Errno;

use super::socket::NetlinkSocket;
use crate::error::NetworkError;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLA_F_NESTED: u16 = 0x8000;

const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_IPV4: u8 = 2;
const NF_INET_POST_ROUTING: u32 = 4;
/// `srcnat`: where source addresses are rewritten (include/uapi/linux/netfilter_ipv4.h).
const NF_IP_PRI_NAT_SRC: u32 = 100;

const NFT_REG_1: u32 = 1;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
/// Offsets in the IPv4 header (RFC 791), in bytes.
const SOURCE_OFFSET: u32 = 12;
const DESTINATION_OFFSET: u32 = 16;
const ADDRESS_BYTES: u32 = 4;

/// Traffic from `source` to anywhere outside of all `inside` is masqueraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MasqueradeRule {
    pub(crate) source: Ipv4Net,
    pub(crate) inside: Vec<Ipv4Net>,
}

/// Replaces table `ip <table>` by one with these rules, in one transaction: at no moment is there
/// a packet that sees half of it.
pub(crate) fn replace_table(
    socket: &mut NetlinkSocket,
    table: &str,
    chain: &str,
    rules: &[MasqueradeRule],
) -> Result<(), NetworkError> {
    let mut batch = Batch::begin(socket);
    // Created first, so that deleting it cannot fail; deleted, so that old rules go.
    batch.push(socket, NFT_MSG_NEWTABLE, NLM_F_CREATE, &table_name(table));
    batch.push(socket, NFT_MSG_DELTABLE, 0, &table_name(table));
    batch.push(socket, NFT_MSG_NEWTABLE, NLM_F_CREATE, &table_name(table));
    batch.push(
        socket,
        NFT_MSG_NEWCHAIN,
        NLM_F_CREATE,
        &postrouting(table, chain),
    );
    for rule in rules {
        let body = masquerade(table, chain, rule);
        batch.push(socket, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &body);
    }
    match batch.commit(
        socket,
        "write the masquerade rules (is nf_tables available?)",
    )? {
        None => Ok(()),
        Some(source) => Err(NetworkError::Kernel {
            step: "write the masquerade rules",
            source,
        }),
    }
}

/// Deletes table `ip <table>` with all in it; it need not exist.
pub(crate) fn delete_table(socket: &mut NetlinkSocket, table: &str) -> Result<(), NetworkError> {
    let mut batch = Batch::begin(socket);
    batch.push(socket, NFT_MSG_DELTABLE, 0, &table_name(table));
    match batch.commit(socket, "delete the masquerade rules")? {
        None | Some(Errno::ENOENT) => Ok(()),
        Some(source) => Err(NetworkError::Kernel {
            step: "delete the masquerade rules",
            source,
        }),
    }
}

/// A transaction being written.
struct Batch {
    bytes: Vec<u8>,
    acks: usize,
}

impl Batch {
    fn begin(socket: &mut NetlinkSocket) -> Self {
        let mut batch = Self {
            bytes: Vec::new(),
            acks: 0,
        };
        let header = GenericHeader {
            family: NFPROTO_UNSPEC,
            resource: NFNL_SUBSYS_NFTABLES,
        };
        batch.message(socket, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, header, &[]);
        batch
    }

    fn push(&mut self, socket: &mut NetlinkSocket, kind: u16, flags: u16, body: &[u8]) {
        let kind = NFNL_SUBSYS_NFTABLES << 8 | kind;
        let header = GenericHeader {
            family: NFPROTO_IPV4,
            resource: 0,
        };
        self.message(
            socket,
            kind,
            NLM_F_REQUEST | NLM_F_ACK | flags,
            header,
            body,
        );
        self.acks += 1;
    }

    /// Ends and sends the transaction. `Some` is the reason why nothing of it was done.
    fn commit(
        mut self,
        socket: &mut NetlinkSocket,
        step: &'static str,
    ) -> Result<Option<Errno>, NetworkError> {
        let header = GenericHeader {
            family: NFPROTO_UNSPEC,
            resource: NFNL_SUBSYS_NFTABLES,
        };
        self.message(socket, NFNL_MSG_BATCH_END, NLM_F_REQUEST, header, &[]);
        let refusals = socket.exchange(&self.bytes, self.acks, step)?;
        Ok(refusals.first().map(|(_, errno)| *errno))
    }

    fn message(
        &mut self,
        socket: &mut NetlinkSocket,
        kind: u16,
        flags: u16,
        header: GenericHeader,
        body: &[u8],
    ) {
        const HEADERS_BYTES: usize = 16 + 4;
        let length = u32::try_from(HEADERS_BYTES + body.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes
            .extend_from_slice(&socket.next_sequence().to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]); // port: the kernel's
        self.bytes.extend_from_slice(&[header.family, 0]); // 0 = NFNETLINK_V0
        self.bytes.extend_from_slice(&header.resource.to_be_bytes());
        self.bytes.extend_from_slice(body);
    }
}

/// `struct nfgenmsg` without its version.
struct GenericHeader {
    family: u8,
    resource: u16,
}

fn table_name(table: &str) -> Vec<u8> {
    const NFTA_TABLE_NAME: u16 = 1;
    text(NFTA_TABLE_NAME, table)
}

/// `chain <chain> { type nat hook postrouting priority srcnat; policy accept; }`
fn postrouting(table: &str, chain: &str) -> Vec<u8> {
    const NFTA_CHAIN_TABLE: u16 = 1;
    const NFTA_CHAIN_NAME: u16 = 3;
    const NFTA_CHAIN_HOOK: u16 = 4;
    const NFTA_CHAIN_TYPE: u16 = 7;
    const NFTA_HOOK_HOOKNUM: u16 = 1;
    const NFTA_HOOK_PRIORITY: u16 = 2;
    let hook = [
        number(NFTA_HOOK_HOOKNUM, NF_INET_POST_ROUTING),
        number(NFTA_HOOK_PRIORITY, NF_IP_PRI_NAT_SRC),
    ]
    .concat();
    [
        text(NFTA_CHAIN_TABLE, table),
        text(NFTA_CHAIN_NAME, chain),
        nested(NFTA_CHAIN_HOOK, &hook),
        text(NFTA_CHAIN_TYPE, "nat"),
    ]
    .concat()
}

/// `ip saddr <source> ip daddr != <inside> … masquerade`
fn masquerade(table: &str, chain: &str, rule: &MasqueradeRule) -> Vec<u8> {
    const NFTA_RULE_TABLE: u16 = 1;
    const NFTA_RULE_CHAIN: u16 = 2;
    const NFTA_RULE_EXPRESSIONS: u16 = 4;
    let mut expressions = matching(SOURCE_OFFSET, NFT_CMP_EQ, rule.source);
    for inside in &rule.inside {
        expressions.extend(matching(DESTINATION_OFFSET, NFT_CMP_NEQ, *inside));
    }
    expressions.extend(expression("masq", &[]));
    [
        text(NFTA_RULE_TABLE, table),
        text(NFTA_RULE_CHAIN, chain),
        nested(NFTA_RULE_EXPRESSIONS, &expressions),
    ]
    .concat()
}

/// Loads an address of the packet, masks it to the subnet's prefix, and compares.
fn matching(offset: u32, operator: u32, subnet: Ipv4Net) -> Vec<u8> {
    const NFTA_PAYLOAD_DREG: u16 = 1;
    const NFTA_PAYLOAD_BASE: u16 = 2;
    const NFTA_PAYLOAD_OFFSET: u16 = 3;
    const NFTA_PAYLOAD_LEN: u16 = 4;
    const NFTA_BITWISE_SREG: u16 = 1;
    const NFTA_BITWISE_DREG: u16 = 2;
    const NFTA_BITWISE_LEN: u16 = 3;
    const NFTA_BITWISE_MASK: u16 = 4;
    const NFTA_BITWISE_XOR: u16 = 5;
    const NFTA_CMP_SREG: u16 = 1;
    const NFTA_CMP_OP: u16 = 2;
    const NFTA_CMP_DATA: u16 = 3;
    let payload = [
        number(NFTA_PAYLOAD_DREG, NFT_REG_1),
        number(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER),
        number(NFTA_PAYLOAD_OFFSET, offset),
        number(NFTA_PAYLOAD_LEN, ADDRESS_BYTES),
    ]
    .concat();
    let bitwise = [
        number(NFTA_BITWISE_SREG, NFT_REG_1),
        number(NFTA_BITWISE_DREG, NFT_REG_1),
        number(NFTA_BITWISE_LEN, ADDRESS_BYTES),
        nested(NFTA_BITWISE_MASK, &value(subnet.netmask())),
        nested(NFTA_BITWISE_XOR, &value(Ipv4Addr::UNSPECIFIED)),
    ]
    .concat();
    let compare = [
        number(NFTA_CMP_SREG, NFT_REG_1),
        number(NFTA_CMP_OP, operator),
        nested(NFTA_CMP_DATA, &value(subnet.network())),
    ]
    .concat();
    [
        expression("payload", &payload),
        expression("bitwise", &bitwise),
        expression("cmp", &compare),
    ]
    .concat()
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    const NFTA_LIST_ELEM: u16 = 1;
    const NFTA_EXPR_NAME: u16 = 1;
    const NFTA_EXPR_DATA: u16 = 2;
    let body = [text(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, data)].concat();
    nested(NFTA_LIST_ELEM, &body)
}

fn value(address: Ipv4Addr) -> Vec<u8> {
    const NFTA_DATA_VALUE: u16 = 1;
    attribute(NFTA_DATA_VALUE, &address.octets())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, body: &[u8]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, body)
}

/// `struct nlattr`, its value, and padding to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 4;
    let length = HEADER_BYTES + value.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}
