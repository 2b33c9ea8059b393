//! What rules are made of: each expression works on registers of four bytes.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Family;
use super::attribute::{data, nested, number, text};
use super::object::LIST_ELEMENT;

/// A register of four bytes (`NFT_REG32_00` and those after it).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register(pub(crate) u32);

impl Register {
    fn number(self) -> u32 {
        const NFT_REG32_00: u32 = 8;
        NFT_REG32_00 + self.0
    }
}

/// An address in the header of IPv4 (RFC 791) or IPv6 (RFC 8200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Source,
    Destination,
}

/// How a register is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    Different,
}

/// How many registers an address of a packet fills.
pub(crate) fn address_registers(family: Family) -> u32 {
    match family {
        Family::Ip => 1,
        Family::Ip6 => 4,
        Family::Bridge => 2,
    }
}

/// Loads an address of the packet; a frame's is its hardware address.
pub(crate) fn load_address(family: Family, address: Address, to: Register) -> Vec<u8> {
    const NFT_PAYLOAD_LL_HEADER: u32 = 0;
    const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
    let (header, offset, length) = match (family, address) {
        (Family::Ip, Address::Source) => (NFT_PAYLOAD_NETWORK_HEADER, 12, 4),
        (Family::Ip, Address::Destination) => (NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
        (Family::Ip6, Address::Source) => (NFT_PAYLOAD_NETWORK_HEADER, 8, 16),
        (Family::Ip6, Address::Destination) => (NFT_PAYLOAD_NETWORK_HEADER, 24, 16),
        (Family::Bridge, Address::Source) => (NFT_PAYLOAD_LL_HEADER, 6, 6),
        (Family::Bridge, Address::Destination) => (NFT_PAYLOAD_LL_HEADER, 0, 6),
    };
    payload(header, offset, length, to)
}

/// Loads the destination port, which lies at the same place for TCP, UDP and SCTP.
pub(crate) fn load_destination_port(to: Register) -> Vec<u8> {
    const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
    payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, to)
}

/// Loads the number of the transport protocol.
pub(crate) fn load_protocol(to: Register) -> Vec<u8> {
    const NFT_META_L4PROTO: u32 = 16;
    meta(NFT_META_L4PROTO, to)
}

/// Loads the name of the interface by which the packet came, into four registers.
pub(crate) fn load_interface_name(to: Register) -> Vec<u8> {
    const NFT_META_IIFNAME: u32 = 6;
    meta(NFT_META_IIFNAME, to)
}

/// `ip saddr <subnet>` or its like, in the subnet's family.
pub(crate) fn match_subnet(address: Address, compare: Compare, subnet: IpNet) -> Vec<u8> {
    let register = Register(0);
    [
        load_address(Family::of(subnet.addr()), address, register),
        mask(register, &octets(subnet.netmask())),
        compared(register, compare, &octets(subnet.network())),
    ]
    .concat()
}

/// An address as it is in a packet.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// `fib daddr type local`: the packet is for one of this machine's own addresses.
pub(crate) fn match_local_destination() -> Vec<u8> {
    const NFTA_FIB_DREG: u16 = 1;
    const NFTA_FIB_RESULT: u16 = 2;
    const NFTA_FIB_FLAGS: u16 = 3;
    const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
    const NFTA_FIB_F_DADDR: u32 = 2;
    /// `RTN_LOCAL` of include/uapi/linux/rtnetlink.h.
    const RTN_LOCAL: u32 = 2;
    let register = Register(0);
    let body = [
        number(NFTA_FIB_DREG, register.number()),
        number(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE),
        number(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR),
    ];
    [
        expression("fib", &body.concat()),
        compared(register, Compare::Equal, &RTN_LOCAL.to_ne_bytes()),
    ]
    .concat()
}

/// `ct status dnat`: the packet's destination has been rewritten.
pub(crate) fn match_rewritten_destination() -> Vec<u8> {
    const NFTA_CT_DREG: u16 = 1;
    const NFTA_CT_KEY: u16 = 2;
    const NFT_CT_STATUS: u32 = 2;
    /// `IPS_DST_NAT` of include/uapi/linux/netfilter/nf_conntrack_common.h.
    const IPS_DST_NAT: u32 = 1 << 5;
    let register = Register(0);
    let body = [
        number(NFTA_CT_DREG, register.number()),
        number(NFTA_CT_KEY, NFT_CT_STATUS),
    ];
    [
        expression("ct", &body.concat()),
        mask(register, &IPS_DST_NAT.to_ne_bytes()),
        compared(register, Compare::Different, &[0; 4]),
    ]
    .concat()
}

/// Looks a key up in a map and loads its value; the rule ends here if there is none.
pub(crate) fn look_up(map: &str, key: Register, value: Register) -> Vec<u8> {
    const NFTA_LOOKUP_SET: u16 = 1;
    const NFTA_LOOKUP_SREG: u16 = 2;
    const NFTA_LOOKUP_DREG: u16 = 3;
    let body = [
        text(NFTA_LOOKUP_SET, map),
        number(NFTA_LOOKUP_SREG, key.number()),
        number(NFTA_LOOKUP_DREG, value.number()),
    ];
    expression("lookup", &body.concat())
}

/// Goes on with the rule if the key is in the set, or if it is not.
pub(crate) fn match_set(set: &str, key: Register, compare: Compare) -> Vec<u8> {
    const NFTA_LOOKUP_SET: u16 = 1;
    const NFTA_LOOKUP_SREG: u16 = 2;
    const NFTA_LOOKUP_FLAGS: u16 = 5;
    const NFT_LOOKUP_F_INV: u32 = 1;
    let flags = match compare {
        Compare::Equal => 0,
        Compare::Different => NFT_LOOKUP_F_INV,
    };
    let body = [
        text(NFTA_LOOKUP_SET, set),
        number(NFTA_LOOKUP_SREG, key.number()),
        number(NFTA_LOOKUP_FLAGS, flags),
    ];
    expression("lookup", &body.concat())
}

/// Sends the packet to the address that begins in one register and to the port in another.
pub(crate) fn rewrite_destination(family: Family, address: Register, port: Register) -> Vec<u8> {
    const NFTA_NAT_TYPE: u16 = 1;
    const NFTA_NAT_FAMILY: u16 = 2;
    const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
    const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
    const NFT_NAT_DNAT: u32 = 1;
    let body = [
        number(NFTA_NAT_TYPE, NFT_NAT_DNAT),
        number(NFTA_NAT_FAMILY, u32::from(family as u8)),
        number(NFTA_NAT_REG_ADDR_MIN, address.number()),
        number(NFTA_NAT_REG_PROTO_MIN, port.number()),
    ];
    expression("nat", &body.concat())
}

/// Gives the packet the source address of the interface that it leaves by.
pub(crate) fn masquerade() -> Vec<u8> {
    expression("masq", &[])
}

/// `iif != lo`: the packet came from another machine, or from a pod.
pub(crate) fn match_foreign() -> Vec<u8> {
    const NFT_META_IIF: u32 = 4;
    /// `LOOPBACK_IFINDEX` of include/net/flow.h.
    const LOOPBACK: u32 = 1;
    let register = Register(0);
    [
        meta(NFT_META_IIF, register),
        compared(register, Compare::Different, &LOOPBACK.to_ne_bytes()),
    ]
    .concat()
}

/// Throws the packet away.
pub(crate) fn drop_packet() -> Vec<u8> {
    const NF_DROP: i32 = 0;
    verdict(NF_DROP, None)
}

/// Goes on in another chain, and comes back.
pub(crate) fn jump(chain: &str) -> Vec<u8> {
    const NFT_JUMP: i32 = -3;
    verdict(NFT_JUMP, Some(chain))
}

fn verdict(code: i32, chain: Option<&str>) -> Vec<u8> {
    const NFTA_IMMEDIATE_DREG: u16 = 1;
    const NFTA_IMMEDIATE_DATA: u16 = 2;
    const NFTA_DATA_VERDICT: u16 = 2;
    const NFTA_VERDICT_CODE: u16 = 1;
    const NFTA_VERDICT_CHAIN: u16 = 2;
    const NFT_REG_VERDICT: u32 = 0;
    let mut verdict = number(NFTA_VERDICT_CODE, code.cast_unsigned());
    verdict.extend(
        chain
            .into_iter()
            .flat_map(|chain| text(NFTA_VERDICT_CHAIN, chain)),
    );
    let verdict = nested(NFTA_DATA_VERDICT, &verdict);
    let body = [
        number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT),
        nested(NFTA_IMMEDIATE_DATA, &verdict),
    ];
    expression("immediate", &body.concat())
}

fn meta(key: u32, to: Register) -> Vec<u8> {
    const NFTA_META_DREG: u16 = 1;
    const NFTA_META_KEY: u16 = 2;
    let body = [
        number(NFTA_META_DREG, to.number()),
        number(NFTA_META_KEY, key),
    ];
    expression("meta", &body.concat())
}

fn payload(base: u32, offset: u32, length: u32, to: Register) -> Vec<u8> {
    const NFTA_PAYLOAD_DREG: u16 = 1;
    const NFTA_PAYLOAD_BASE: u16 = 2;
    const NFTA_PAYLOAD_OFFSET: u16 = 3;
    const NFTA_PAYLOAD_LEN: u16 = 4;
    let body = [
        number(NFTA_PAYLOAD_DREG, to.number()),
        number(NFTA_PAYLOAD_BASE, base),
        number(NFTA_PAYLOAD_OFFSET, offset),
        number(NFTA_PAYLOAD_LEN, length),
    ];
    expression("payload", &body.concat())
}

fn mask(register: Register, mask: &[u8]) -> Vec<u8> {
    const NFTA_BITWISE_SREG: u16 = 1;
    const NFTA_BITWISE_DREG: u16 = 2;
    const NFTA_BITWISE_LEN: u16 = 3;
    const NFTA_BITWISE_MASK: u16 = 4;
    const NFTA_BITWISE_XOR: u16 = 5;
    let body = [
        number(NFTA_BITWISE_SREG, register.number()),
        number(NFTA_BITWISE_DREG, register.number()),
        number(
            NFTA_BITWISE_LEN,
            u32::try_from(mask.len()).unwrap_or(u32::MAX),
        ),
        data(NFTA_BITWISE_MASK, mask),
        data(NFTA_BITWISE_XOR, &vec![0; mask.len()]),
    ];
    expression("bitwise", &body.concat())
}

fn compared(register: Register, compare: Compare, value: &[u8]) -> Vec<u8> {
    const NFTA_CMP_SREG: u16 = 1;
    const NFTA_CMP_OP: u16 = 2;
    const NFTA_CMP_DATA: u16 = 3;
    let operator = match compare {
        Compare::Equal => 0,
        Compare::Different => 1,
    };
    let body = [
        number(NFTA_CMP_SREG, register.number()),
        number(NFTA_CMP_OP, operator),
        data(NFTA_CMP_DATA, value),
    ];
    expression("cmp", &body.concat())
}

fn expression(name: &str, body: &[u8]) -> Vec<u8> {
    const NFTA_EXPR_NAME: u16 = 1;
    const NFTA_EXPR_DATA: u16 = 2;
    let body = [text(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, body)].concat();
    nested(LIST_ELEMENT, &body)
}
