//! What rules are made of: each expression works on registers of four bytes.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

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

/// An address in the IPv4 header (RFC 791).
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

/// Loads an address of the packet.
pub(crate) fn load_address(address: Address, to: Register) -> Vec<u8> {
    const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
    let offset = match address {
        Address::Source => 12,
        Address::Destination => 16,
    };
    payload(NFT_PAYLOAD_NETWORK_HEADER, offset, 4, to)
}

/// Loads the destination port, which lies at the same place for TCP, UDP and SCTP.
pub(crate) fn load_destination_port(to: Register) -> Vec<u8> {
    const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
    payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, to)
}

/// Loads the number of the transport protocol.
pub(crate) fn load_protocol(to: Register) -> Vec<u8> {
    const NFTA_META_DREG: u16 = 1;
    const NFTA_META_KEY: u16 = 2;
    const NFT_META_L4PROTO: u32 = 16;
    let body = [
        number(NFTA_META_DREG, to.number()),
        number(NFTA_META_KEY, NFT_META_L4PROTO),
    ];
    expression("meta", &body.concat())
}

/// `ip saddr <subnet>` or its like.
pub(crate) fn match_subnet(address: Address, compare: Compare, subnet: Ipv4Net) -> Vec<u8> {
    let register = Register(0);
    [
        load_address(address, register),
        mask(register, subnet.netmask().octets()),
        compared(register, compare, &subnet.network().octets()),
    ]
    .concat()
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
        mask(register, IPS_DST_NAT.to_ne_bytes()),
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

/// Sends the packet to the address and port in two registers.
pub(crate) fn rewrite_destination(address: Register, port: Register) -> Vec<u8> {
    const NFTA_NAT_TYPE: u16 = 1;
    const NFTA_NAT_FAMILY: u16 = 2;
    const NFTA_NAT_REG_ADDR_MIN: u16 = 3;
    const NFTA_NAT_REG_PROTO_MIN: u16 = 5;
    const NFT_NAT_DNAT: u32 = 1;
    let body = [
        number(NFTA_NAT_TYPE, NFT_NAT_DNAT),
        number(NFTA_NAT_FAMILY, super::NFPROTO_IPV4.into()),
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
    const NFTA_META_DREG: u16 = 1;
    const NFTA_META_KEY: u16 = 2;
    const NFT_META_IIF: u32 = 4;
    /// `LOOPBACK_IFINDEX` of include/net/flow.h.
    const LOOPBACK: u32 = 1;
    let register = Register(0);
    let body = [
        number(NFTA_META_DREG, register.number()),
        number(NFTA_META_KEY, NFT_META_IIF),
    ];
    [
        expression("meta", &body.concat()),
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

fn mask(register: Register, mask: [u8; 4]) -> Vec<u8> {
    const NFTA_BITWISE_SREG: u16 = 1;
    const NFTA_BITWISE_DREG: u16 = 2;
    const NFTA_BITWISE_LEN: u16 = 3;
    const NFTA_BITWISE_MASK: u16 = 4;
    const NFTA_BITWISE_XOR: u16 = 5;
    let body = [
        number(NFTA_BITWISE_SREG, register.number()),
        number(NFTA_BITWISE_DREG, register.number()),
        number(NFTA_BITWISE_LEN, 4),
        data(NFTA_BITWISE_MASK, &mask),
        data(NFTA_BITWISE_XOR, &Ipv4Addr::UNSPECIFIED.octets()),
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
