//! Tables, chains, rules, maps and their elements.

use super::attribute::{attribute, data, nested, number, text};

/// `NFTA_LIST_ELEM`: one of several.
pub(super) const LIST_ELEMENT: u16 = 1;

/// Where a base chain sees packets (`enum nf_inet_hooks`), and when among others
/// (`enum nf_ip_hook_priorities`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// Packets that come in, before anything is known of them; they may be dropped here.
    Raw,
    /// Packets that come in; destinations are rewritten here.
    Prerouting,
    /// Packets of this machine; destinations are rewritten here.
    Output,
    /// Packets that leave; sources are rewritten here.
    Postrouting,
}

impl Hook {
    fn kind(self) -> &'static str {
        match self {
            Self::Raw => "filter",
            Self::Prerouting | Self::Output | Self::Postrouting => "nat",
        }
    }

    fn number_and_priority(self) -> (u32, i32) {
        const NF_IP_PRI_RAW: i32 = -300;
        const NF_IP_PRI_NAT_DST: i32 = -100;
        const NF_IP_PRI_NAT_SRC: i32 = 100;
        match self {
            Self::Raw => (0, NF_IP_PRI_RAW),
            Self::Prerouting => (0, NF_IP_PRI_NAT_DST),
            Self::Output => (3, NF_IP_PRI_NAT_DST),
            Self::Postrouting => (4, NF_IP_PRI_NAT_SRC),
        }
    }
}

/// A chain; without a hook it is only jumped to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    pub(crate) name: &'a str,
    pub(crate) hook: Option<Hook>,
}

impl Chain<'_> {
    /// `chain <name> { type <kind> hook <hook> priority <…>; policy accept; }`
    pub(super) fn body(self, table: &str) -> Vec<u8> {
        const NFTA_CHAIN_TABLE: u16 = 1;
        const NFTA_CHAIN_NAME: u16 = 3;
        const NFTA_CHAIN_HOOK: u16 = 4;
        const NFTA_CHAIN_TYPE: u16 = 7;
        const NFTA_HOOK_HOOKNUM: u16 = 1;
        const NFTA_HOOK_PRIORITY: u16 = 2;
        let mut body = [
            text(NFTA_CHAIN_TABLE, table),
            text(NFTA_CHAIN_NAME, self.name),
        ]
        .concat();
        if let Some(hook) = self.hook {
            let kind = hook.kind();
            let (place, priority) = hook.number_and_priority();
            let hook = [
                number(NFTA_HOOK_HOOKNUM, place),
                number(NFTA_HOOK_PRIORITY, priority.cast_unsigned()),
            ]
            .concat();
            body.extend(nested(NFTA_CHAIN_HOOK, &hook));
            body.extend(text(NFTA_CHAIN_TYPE, kind));
        }
        body
    }
}

/// The type of one part of a key or value, as `nft` shows it (`enum datatypes` of nftables'
/// include/datatype.h).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Ipv4Address,
    Ipv6Address,
    HardwareAddress,
    Protocol,
    Port,
    InterfaceName,
}

impl Part {
    fn number(self) -> u32 {
        match self {
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::HardwareAddress => 9,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::InterfaceName => 41,
        }
    }

    /// How many registers it fills in a concatenation.
    fn registers(self) -> usize {
        match self {
            Self::Ipv4Address | Self::Protocol | Self::Port => 1,
            Self::HardwareAddress => 2,
            // `IFNAMSIZ` of include/uapi/linux/if.h.
            Self::Ipv6Address | Self::InterfaceName => 4,
        }
    }
}

/// A map from concatenated parts to concatenated parts; without parts of a value it is a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map<'a> {
    pub(crate) name: &'a str,
    pub(crate) key: &'a [Part],
    pub(crate) value: &'a [Part],
}

impl Map<'_> {
    pub(super) fn body(self, table: &str, id: u32) -> Vec<u8> {
        const NFTA_SET_TABLE: u16 = 1;
        const NFTA_SET_NAME: u16 = 2;
        const NFTA_SET_FLAGS: u16 = 3;
        const NFTA_SET_KEY_TYPE: u16 = 4;
        const NFTA_SET_KEY_LEN: u16 = 5;
        const NFTA_SET_DATA_TYPE: u16 = 6;
        const NFTA_SET_DATA_LEN: u16 = 7;
        const NFTA_SET_ID: u16 = 10;
        const NFTA_SET_USERDATA: u16 = 13;
        const NFT_SET_MAP: u32 = 0x8;
        /// For `nft` alone: `NFTNL_UDATA_SET_KEYBYTEORDER`, four bytes, the host's order. Without
        /// it names are shown backwards.
        const HOST_ORDER: [u8; 6] = [0, 4, 1, 0, 0, 0];
        let is_map = !self.value.is_empty();
        let mut body = [
            text(NFTA_SET_TABLE, table),
            text(NFTA_SET_NAME, self.name),
            number(NFTA_SET_FLAGS, if is_map { NFT_SET_MAP } else { 0 }),
            number(NFTA_SET_KEY_TYPE, concatenated(self.key)),
            number(NFTA_SET_KEY_LEN, length_bytes(self.key)),
            number(NFTA_SET_ID, id),
        ]
        .concat();
        if is_map {
            body.extend(number(NFTA_SET_DATA_TYPE, concatenated(self.value)));
            body.extend(number(NFTA_SET_DATA_LEN, length_bytes(self.value)));
        }
        if let [Part::InterfaceName] = self.key {
            body.extend(attribute(NFTA_SET_USERDATA, &HOST_ORDER));
        }
        body
    }
}

/// Six bits a part (`TYPE_BITS` of nftables).
fn concatenated(parts: &[Part]) -> u32 {
    parts.iter().fold(0, |all, part| all << 6 | part.number())
}

fn length_bytes(parts: &[Part]) -> u32 {
    let registers: usize = parts.iter().map(|part| part.registers()).sum();
    u32::try_from(4 * registers).unwrap_or(u32::MAX)
}

pub(super) fn table_name(table: &str) -> Vec<u8> {
    const NFTA_TABLE_NAME: u16 = 1;
    text(NFTA_TABLE_NAME, table)
}

/// What a rule is for, in words of its owner.
pub(super) const NFTA_RULE_USERDATA: u16 = 7;
/// `NFTNL_UDATA_RULE_COMMENT`, as `nft` shows it.
pub(super) const RULE_COMMENT: u8 = 0;
/// What is left of `NFT_USERDATA_MAXLEN` (include/uapi/linux/netfilter/nf_tables.h), whose length
/// is in one byte, for the text and its zero.
const COMMENT_BYTES_MAX: usize = 254;

pub(super) fn rule(table: &str, chain: &str, expressions: &[u8], comment: Option<&str>) -> Vec<u8> {
    const NFTA_RULE_TABLE: u16 = 1;
    const NFTA_RULE_CHAIN: u16 = 2;
    const NFTA_RULE_EXPRESSIONS: u16 = 4;
    [
        text(NFTA_RULE_TABLE, table),
        text(NFTA_RULE_CHAIN, chain),
        nested(NFTA_RULE_EXPRESSIONS, expressions),
        comment.map(user_data).unwrap_or_default(),
    ]
    .concat()
}

fn user_data(comment: &str) -> Vec<u8> {
    let end = comment.floor_char_boundary(COMMENT_BYTES_MAX - 1);
    let mut data = vec![RULE_COMMENT, u8::try_from(end + 1).unwrap_or(u8::MAX)];
    data.extend_from_slice(&comment.as_bytes()[..end]);
    data.push(0);
    attribute(NFTA_RULE_USERDATA, &data)
}

pub(super) fn element(table: &str, map: &str, key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
    const NFTA_SET_ELEM_LIST_SET: u16 = 2;
    const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
    const NFTA_SET_ELEM_KEY: u16 = 1;
    const NFTA_SET_ELEM_DATA: u16 = 2;
    let mut one = data(NFTA_SET_ELEM_KEY, key);
    one.extend(
        value
            .iter()
            .flat_map(|value| data(NFTA_SET_ELEM_DATA, value)),
    );
    [
        text(NFTA_SET_ELEM_LIST_TABLE, table),
        text(NFTA_SET_ELEM_LIST_SET, map),
        nested(NFTA_SET_ELEM_LIST_ELEMENTS, &nested(LIST_ELEMENT, &one)),
    ]
    .concat()
}
