//! The table's chains, maps and elements.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Ports;
use super::mapping::{KEY_ANY, KEY_BOUND, VALUE};
use crate::netlink::nft::{self, Address, Chain, Compare, Hook, Map, Register, Transaction};

/// Ports of all addresses of the node.
const ANY: &str = "any";
/// Ports of one address.
const BOUND: &str = "bound";
/// The chain with the maps.
const PORTS: &str = "ports";
const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const POSTROUTING: &str = "postrouting";
/// Keeps others away from what listens on the node's own 127.0.0.1.
const GUARD: &str = "guard";

/// The registers of a key begin here, those of the value further on.
const KEY: u32 = 0;
const VALUE_AT: u32 = 4;

/// The table without any port.
pub(super) fn make(transaction: &mut Transaction<'_>, subnets: &BTreeSet<Ipv4Net>) {
    transaction.replace_table();
    for (name, key) in [(ANY, KEY_ANY), (BOUND, KEY_BOUND)] {
        transaction.map(&Map {
            name,
            key,
            value: VALUE,
        });
    }
    for (name, hook) in [
        (PORTS, None),
        (PREROUTING, Some(Hook::Prerouting)),
        (OUTPUT, Some(Hook::Output)),
        (POSTROUTING, Some(Hook::Postrouting)),
        (GUARD, Some(Hook::Raw)),
    ] {
        transaction.chain(&Chain { name, hook });
    }
    for chain in [PREROUTING, OUTPUT] {
        transaction.rule(chain, &[nft::match_local_destination(), nft::jump(PORTS)]);
    }
    let bound = [
        nft::load_address(Address::Destination, Register(KEY)),
        nft::load_protocol(Register(KEY + 1)),
        nft::load_destination_port(Register(KEY + 2)),
    ];
    let any = [
        nft::load_protocol(Register(KEY)),
        nft::load_destination_port(Register(KEY + 1)),
    ];
    for (map, load) in [(BOUND, bound.as_slice()), (ANY, any.as_slice())] {
        let mut rule = load.to_vec();
        rule.push(nft::look_up(map, Register(KEY), Register(VALUE_AT)));
        let (address, port) = (Register(VALUE_AT), Register(VALUE_AT + 1));
        rule.push(nft::rewrite_destination(address, port));
        transaction.rule(PORTS, &rule);
    }
    let loopback = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    // The kernel drops such packets by itself, but not from a bridge with route_localnet
    // (CVE-2020-8558).
    let to_loopback = nft::match_subnet(Address::Destination, Compare::Equal, loopback);
    let rule = [nft::match_foreign(), to_loopback, nft::drop_packet()];
    transaction.rule(GUARD, &rule);
    for source in subnets.iter().chain([&loopback]) {
        let source = nft::match_subnet(Address::Source, Compare::Equal, source.trunc());
        let rule = [
            source,
            nft::match_rewritten_destination(),
            nft::masquerade(),
        ];
        transaction.rule(POSTROUTING, &rule);
    }
}

pub(super) fn add(transaction: &mut Transaction<'_>, ports: &Ports) {
    for mapping in &ports.mappings {
        let map = if mapping.host_ip.is_some() {
            BOUND
        } else {
            ANY
        };
        transaction.add_element(map, &mapping.key(), &mapping.value(ports.address));
    }
}

pub(super) fn delete(transaction: &mut Transaction<'_>, ports: &Ports) {
    for mapping in &ports.mappings {
        let map = if mapping.host_ip.is_some() {
            BOUND
        } else {
            ANY
        };
        transaction.delete_element(map, &mapping.key());
    }
}
