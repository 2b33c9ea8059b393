//! The tables' chains, maps and elements.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Ports;
use super::mapping::{key_any, key_bound, value};
use crate::netlink::nft::{self, Address, Chain, Compare, Family, Hook, Map};
use crate::netlink::nft::{Register, Transaction};

/// Ports of all addresses of the node.
pub(super) const ANY: &str = "any";
/// Ports of one address.
pub(super) const BOUND: &str = "bound";
/// The chain with the maps.
const PORTS: &str = "ports";
const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const POSTROUTING: &str = "postrouting";
/// Keeps others away from what listens on the node's own 127.0.0.1.
const GUARD: &str = "guard";

/// The registers of a key begin here, those of the value further on: a key of IPv6 takes six.
const KEY: u32 = 0;
const VALUE_AT: u32 = 8;

const LOOPBACK_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);

/// A family's table without any port. `subnets` are all that there are.
pub(super) fn make(transaction: &mut Transaction<'_>, family: Family, subnets: &BTreeSet<IpNet>) {
    transaction.replace_table();
    let value = value(family);
    for (name, key) in [(ANY, key_any()), (BOUND, key_bound(family))] {
        transaction.map(&Map { name, key, value });
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
    ways_in(transaction, family);
    look_ups(transaction, family);
    let mut sources: Vec<IpNet> = subnets.iter().map(IpNet::trunc).collect();
    sources.retain(|subnet| Family::of(subnet.addr()) == family);
    if family == Family::Ip {
        // The kernel drops such packets by itself, but not from a bridge with route_localnet
        // (CVE-2020-8558). IPv6 has no such switch: those for ::1 are dropped in any case.
        let loopback = IpNet::V4(LOOPBACK_V4);
        let to_loopback = nft::match_subnet(Address::Destination, Compare::Equal, loopback);
        let rule = [nft::match_foreign(), to_loopback, nft::drop_packet()];
        transaction.rule(GUARD, &rule);
        sources.push(loopback);
    }
    for source in sources {
        let rule = [
            nft::match_subnet(Address::Source, Compare::Equal, source),
            nft::match_rewritten_destination(),
            nft::masquerade(),
        ];
        transaction.rule(POSTROUTING, &rule);
    }
}

/// From the hooks into the chain with the maps.
fn ways_in(transaction: &mut Transaction<'_>, family: Family) {
    let mut local = vec![nft::match_local_destination(), nft::jump(PORTS)];
    transaction.rule(PREROUTING, &local);
    if family == Family::Ip6 {
        // A packet from ::1 never leaves the node (RFC 4291, 2.5.3), so a port of ::1 cannot lead
        // to a pod; it stays with whatever listens on the node. The reference portmap does so too.
        let loopback = IpNet::V6(LOOPBACK_V6);
        let others = nft::match_subnet(Address::Destination, Compare::Different, loopback);
        local.insert(0, others);
    }
    transaction.rule(OUTPUT, &local);
}

/// The two rules with the maps.
fn look_ups(transaction: &mut Transaction<'_>, family: Family) {
    let wide = nft::address_registers(family);
    let bound = [
        nft::load_address(family, Address::Destination, Register(KEY)),
        nft::load_protocol(Register(KEY + wide)),
        nft::load_destination_port(Register(KEY + wide + 1)),
    ];
    let any = [
        nft::load_protocol(Register(KEY)),
        nft::load_destination_port(Register(KEY + 1)),
    ];
    for (map, load) in [(BOUND, bound.as_slice()), (ANY, any.as_slice())] {
        let mut rule = load.to_vec();
        rule.push(nft::look_up(map, Register(KEY), Register(VALUE_AT)));
        let (address, port) = (Register(VALUE_AT), Register(VALUE_AT + wide));
        rule.push(nft::rewrite_destination(family, address, port));
        transaction.rule(PORTS, &rule);
    }
}

pub(super) fn add(transaction: &mut Transaction<'_>, family: Family, ports: &Ports) {
    for element in ports.elements(family) {
        transaction.add_element(element.map, &element.key, Some(&element.value));
    }
}

pub(super) fn delete(transaction: &mut Transaction<'_>, family: Family, ports: &Ports) {
    for element in ports.elements(family) {
        transaction.delete_element(element.map, &element.key);
    }
}
