//! The allocator against rules in words, and against an oracle.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::range::Range;
use super::*;

fn ranges(start: u8, end: u8) -> RangeSet {
    set_of("10.0.0.0/24", v4, start, end)
}

fn set_of(subnet: &str, at: fn(u8) -> IpAddr, start: u8, end: u8) -> RangeSet {
    let range = Range::new(
        subnet.parse().unwrap(),
        Some(at(start)),
        Some(at(end)),
        None,
    );
    RangeSet::new(vec![range.unwrap()]).unwrap()
}

fn holder(number: u8) -> Holder {
    Holder {
        container_id: format!("c{number}"),
        ifname: "eth0".into(),
    }
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Around a border of 32 bits, so that whoever counts in fewer than all of them is found out.
fn v6(last: u8) -> IpAddr {
    let base = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xffff, 0xffc0);
    std::net::Ipv6Addr::from_bits(base.to_bits() + u128::from(last)).into()
}

fn last_octet(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

#[test]
fn the_gateway_is_never_handed_out_and_the_search_goes_around() {
    let mut allocator = Allocator::new(ranges(1, 4));
    let mut next = |number| allocator.reserve(&holder(number)).map(last_octet);
    assert_eq!(
        [next(1), next(2), next(3), next(4)],
        [Some(2), Some(3), Some(4), None]
    );
}

#[test]
fn what_nobody_had_yet_comes_before_what_was_freed_long_ago() {
    let now = Instant::now();
    let mut allocator = Allocator::new(ranges(2, 4));
    let first = allocator.reserve(&holder(1)).unwrap();
    allocator.release(first, now);
    allocator.continue_after(v4(4));
    assert_eq!(allocator.reserve(&holder(2)).map(last_octet), Some(3));
    allocator.continue_after(v4(4));
    assert_eq!(allocator.reserve(&holder(3)).map(last_octet), Some(4));
    assert!(!allocator.has_rested(now) && allocator.has_rested(now + COOL_DOWN));
    assert_eq!(allocator.reserve(&holder(4)).map(last_octet), Some(2));
    assert!(!allocator.has_rested(now + COOL_DOWN));
}

#[test]
fn a_holder_that_was_found_with_two_addresses_is_found_as_long_as_it_has_one() {
    let mut allocator = Allocator::new(ranges(2, 9));
    allocator.adopt(v4(4), holder(1));
    allocator.adopt(v4(5), holder(1));
    allocator.release(v4(4), Instant::now());
    assert_eq!(allocator.find(&holder(1)), Some(v4(5)));
    allocator.release(v4(5), Instant::now());
    assert_eq!(allocator.find(&holder(1)), None);
}

#[test]
fn when_nothing_else_is_free_the_longest_resting_address_is_next() {
    let now = Instant::now();
    let mut allocator = Allocator::new(ranges(2, 4));
    let held: Vec<_> = (0..3)
        .map(|n| allocator.reserve(&holder(n)).unwrap())
        .collect();
    allocator.release(held[1], now);
    allocator.release(held[0], now + Duration::from_millis(1));
    assert_eq!(allocator.reserve(&holder(7)), Some(held[1]));
    assert_eq!(allocator.reserve(&holder(8)), Some(held[0]));
    assert_eq!(allocator.reserve(&holder(9)), None);
}

#[test]
fn the_search_goes_on_behind_the_last_reserved_address() {
    let mut allocator = Allocator::new(ranges(1, 254));
    allocator.continue_after(v4(100));
    assert_eq!(allocator.reserve(&holder(1)).map(last_octet), Some(101));
    allocator.continue_after(v4(254));
    assert_eq!(allocator.reserve(&holder(2)).map(last_octet), Some(2));
}

#[derive(Clone, Debug)]
enum Op {
    Reserve,
    Release(u8),
    Wait(u8),
    Adopt(u8),
    Exclude(u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Reserve),
        4 => (0..90_u8).prop_map(Op::Release),
        1 => (0..40_u8).prop_map(Op::Wait),
        1 => (0..90_u8).prop_map(Op::Adopt),
        1 => (60..90_u8).prop_map(Op::Exclude),
    ];
    prop::collection::vec(op, 0..400)
}

/// Runs operations against the allocator and against a map of who holds what.
fn check(ops: &[Op], size: u8, subnet: &str, family: fn(u8) -> IpAddr) {
    let mut allocator = Allocator::new(set_of(subnet, family, 2, size + 1));
    let mut held: BTreeMap<IpAddr, u16> = BTreeMap::new();
    let mut excluded = std::collections::BTreeSet::new();
    // The one that was freed longest ago in front.
    let mut freed: Vec<IpAddr> = Vec::new();
    let mut now = Instant::now();
    for (step, op) in ops.iter().enumerate() {
        let serial = u16::try_from(step).unwrap();
        let who = |n: u16| Holder {
            container_id: n.to_string(),
            ifname: "eth0".into(),
        };
        let at = |octet: u8| family(octet % size + 2);
        match op {
            Op::Reserve => {
                let is_free = |ip: &IpAddr| !excluded.contains(ip) && !held.contains_key(ip);
                let any_free = (0..size).map(at).any(|ip| is_free(&ip));
                let any_fresh = (0..size)
                    .map(at)
                    .any(|ip| is_free(&ip) && !freed.contains(&ip));
                let picked = allocator.reserve(&who(serial));
                let step = "exhausted exactly when all are held";
                assert_eq!(picked.is_some(), any_free, "{step}");
                if let Some(address) = picked {
                    assert!(!excluded.contains(&address));
                    match freed.first() {
                        Some(oldest) if !any_fresh => assert_eq!(address, *oldest),
                        _ => assert!(!freed.contains(&address), "{address} was just freed"),
                    }
                    freed.retain(|one| *one != address);
                    let other = held.insert(address, serial);
                    assert_eq!(other, None, "two holders of {address}");
                }
            }
            Op::Release(octet) => {
                allocator.release(at(*octet), now);
                if held.remove(&at(*octet)).is_some() && !excluded.contains(&at(*octet)) {
                    freed.push(at(*octet));
                }
            }
            Op::Wait(seconds) => now += Duration::from_secs((*seconds).into()),
            Op::Adopt(octet) => {
                let address = at(*octet);
                if !held.contains_key(&address) && !excluded.contains(&address) {
                    allocator.adopt(address, who(serial));
                    freed.retain(|one| *one != address);
                    held.insert(address, serial);
                }
            }
            Op::Exclude(octet) => {
                if !held.contains_key(&at(*octet)) {
                    allocator.exclude(at(*octet));
                    excluded.insert(at(*octet));
                    freed.retain(|one| *one != at(*octet));
                }
            }
        }
        let seen: BTreeMap<_, _> = allocator
            .holders()
            .map(|(address, holder, _)| (address, holder.container_id.parse().unwrap()))
            .collect();
        assert_eq!(seen, held);
        for (address, serial) in &held {
            assert_eq!(allocator.find(&who(*serial)), Some(*address));
        }
    }
}

proptest! {
    #[test]
    fn no_address_has_two_holders_and_freed_ones_come_back(ops in ops(), size in 1..90_u8) {
        check(&ops, size, "10.0.0.0/24", v4);
        check(&ops, size, "fd00::/64", v6);
    }
}
