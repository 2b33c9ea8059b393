//! The allocator against rules in words, and against an oracle.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::range::Range;
use super::*;

fn ranges(start: u8, end: u8) -> RangeSet {
    let ip = |last| Some(Ipv4Addr::new(10, 0, 0, last));
    let subnet = "10.0.0.0/24".parse().unwrap();
    RangeSet::new(vec![Range::new(subnet, ip(start), ip(end), None).unwrap()]).unwrap()
}

fn holder(number: u8) -> Holder {
    Holder {
        container_id: format!("c{number}"),
        ifname: "eth0".into(),
    }
}

fn last_octet(address: Ipv4Addr) -> u8 {
    address.octets()[3]
}

#[test]
fn the_gateway_is_never_handed_out_and_the_search_goes_around() {
    let now = Instant::now();
    let mut allocator = Allocator::new(ranges(1, 4));
    let mut next = |number| allocator.reserve(&holder(number), now).map(last_octet);
    assert_eq!(
        [next(1), next(2), next(3), next(4)],
        [Some(2), Some(3), Some(4), None]
    );
}

#[test]
fn a_freed_address_rests_while_others_are_free() {
    let now = Instant::now();
    let mut allocator = Allocator::new(ranges(2, 4));
    let first = allocator.reserve(&holder(1), now).unwrap();
    allocator.release(first, now);
    allocator.continue_after(Ipv4Addr::new(10, 0, 0, 4));
    assert_eq!(allocator.reserve(&holder(2), now).map(last_octet), Some(3));
    allocator.continue_after(Ipv4Addr::new(10, 0, 0, 4));
    let later = now + COOL_DOWN;
    assert_eq!(
        allocator.reserve(&holder(3), later).map(last_octet),
        Some(2)
    );
}

#[test]
fn when_nothing_else_is_free_the_longest_resting_address_is_next() {
    let now = Instant::now();
    let mut allocator = Allocator::new(ranges(2, 4));
    let held: Vec<_> = (0..3)
        .map(|n| allocator.reserve(&holder(n), now).unwrap())
        .collect();
    allocator.release(held[1], now);
    allocator.release(held[0], now + Duration::from_millis(1));
    assert_eq!(allocator.reserve(&holder(7), now), Some(held[1]));
    assert_eq!(allocator.reserve(&holder(8), now), Some(held[0]));
    assert_eq!(allocator.reserve(&holder(9), now), None);
}

#[test]
fn the_search_goes_on_behind_the_last_reserved_address() {
    let mut allocator = Allocator::new(ranges(1, 254));
    allocator.continue_after(Ipv4Addr::new(10, 0, 0, 100));
    assert_eq!(
        allocator
            .reserve(&holder(1), Instant::now())
            .map(last_octet),
        Some(101)
    );
    allocator.continue_after(Ipv4Addr::new(10, 0, 0, 254));
    assert_eq!(
        allocator
            .reserve(&holder(2), Instant::now())
            .map(last_octet),
        Some(2)
    );
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
fn check(ops: &[Op], size: u8) {
    let mut allocator = Allocator::new(ranges(2, size + 1));
    let mut held: BTreeMap<Ipv4Addr, u16> = BTreeMap::new();
    let mut excluded = std::collections::BTreeSet::new();
    let mut now = Instant::now();
    for (step, op) in ops.iter().enumerate() {
        let serial = u16::try_from(step).unwrap();
        let who = |n: u16| Holder {
            container_id: n.to_string(),
            ifname: "eth0".into(),
        };
        let at = |octet: u8| Ipv4Addr::new(10, 0, 0, octet % size + 2);
        match op {
            Op::Reserve => {
                let free = (0..size).map(at).filter(|ip| !excluded.contains(ip));
                let any_free = free.filter(|ip| !held.contains_key(ip)).count() > 0;
                let picked = allocator.reserve(&who(serial), now);
                assert_eq!(
                    picked.is_some(),
                    any_free,
                    "exhausted exactly when all are held"
                );
                if let Some(address) = picked {
                    assert!(!excluded.contains(&address));
                    assert_eq!(
                        held.insert(address, serial),
                        None,
                        "two holders of {address}"
                    );
                }
            }
            Op::Release(octet) => {
                allocator.release(at(*octet), now);
                held.remove(&at(*octet));
            }
            Op::Wait(seconds) => now += Duration::from_secs((*seconds).into()),
            Op::Adopt(octet) => {
                let address = at(*octet);
                if !held.contains_key(&address) && !excluded.contains(&address) {
                    allocator.adopt(address, who(serial));
                    held.insert(address, serial);
                }
            }
            Op::Exclude(octet) => {
                if !held.contains_key(&at(*octet)) {
                    allocator.exclude(at(*octet));
                    excluded.insert(at(*octet));
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
        check(&ops, size);
    }
}
