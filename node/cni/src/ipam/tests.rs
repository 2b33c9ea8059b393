//! Leases of several range sets: all of their addresses or none, and the files of each.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;

use super::range::Range;
use super::*;

fn holder(number: usize) -> Holder {
    Holder {
        container_id: format!("c{number}"),
        ifname: "eth0".into(),
    }
}

/// A set with this many addresses for pods behind the gateway.
fn set(subnet: &str, pods: u8) -> RangeSet {
    let subnet: IpNet = subnet.parse().unwrap();
    let whole = Range::new(subnet, None, None, None).unwrap();
    let end = whole.at(pods.into());
    RangeSet::new(vec![Range::new(subnet, None, end, None).unwrap()]).unwrap()
}

fn texts(lease: &Lease) -> Vec<String> {
    let addresses = lease.addresses.iter();
    addresses
        .map(|leased| format!("{} via {}", leased.address, leased.gateway))
        .collect()
}

/// Addresses that have a file.
fn files(dir: &Path) -> BTreeMap<IpAddr, String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let addresses = entries.filter_map(|entry| {
        let address = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path()).unwrap();
        Some((address, text.lines().next().unwrap_or_default().to_owned()))
    });
    addresses.collect()
}

#[test]
fn a_pod_gets_one_address_of_each_set_and_frees_all() {
    let dir = tempfile::tempdir().unwrap();
    let sets = vec![
        set("10.0.0.0/24", 9),
        set("fd00::/64", 9),
        set("10.1.0.0/24", 9),
    ];
    let pool = Pool::open(dir.path(), vec![sets.clone()]).unwrap();
    let lease = pool.reserve(&holder(1), 0, &[]).unwrap();
    let wanted = [
        "10.0.0.2/24 via 10.0.0.1",
        "fd00::2/64 via fd00::1",
        "10.1.0.2/24 via 10.1.0.1",
    ];
    assert_eq!(texts(&lease), wanted);
    assert_eq!(files(dir.path()).len(), 3);
    for (number, address) in lease.ips().enumerate() {
        let last = dir.path().join(format!("last_reserved_ip.{number}"));
        assert_eq!(fs::read_to_string(last).unwrap(), address.to_string());
    }
    // As a program that starts again finds it.
    let again = Pool::open(dir.path(), vec![sets]).unwrap();
    assert_eq!(again.find(&holder(1)).unwrap(), Some(lease));
    let next = again.reserve(&holder(2), 0, &[]).unwrap();
    assert_eq!(texts(&next)[1], "fd00::3/64 via fd00::1");
    let twice = again.reserve(&holder(2), 0, &[]).unwrap_err();
    assert_eq!(twice.code(), crate::error::code::ALREADY_ATTACHED);
    assert!(again.release(&holder(1)).unwrap());
    assert!(again.release(&holder(2)).unwrap());
    assert!(!again.release(&holder(2)).unwrap());
    assert!(files(dir.path()).is_empty());
}

#[test]
fn what_the_first_set_gave_is_free_again_when_the_second_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let sets = vec![set("10.0.0.0/24", 2), set("fd00::/64", 1)];
    let pool = Pool::open(dir.path(), vec![sets]).unwrap();
    pool.reserve(&holder(1), 0, &[]).unwrap();
    let full = pool.reserve(&holder(2), 0, &[]).unwrap_err();
    let text = "no IP addresses available in range set: fd00::1-fd00::2";
    assert_eq!(full.to_string(), text);
    assert_eq!(files(dir.path()).len(), 2);
    assert_eq!(pool.find(&holder(2)).unwrap(), None);
    pool.release(&holder(1)).unwrap();
    // Not resting: nobody has ever seen it.
    assert_eq!(
        texts(&pool.reserve(&holder(3), 0, &[]).unwrap())[0],
        "10.0.0.3/24 via 10.0.0.1"
    );
}

#[test]
fn a_bridge_with_one_full_set_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let shards = vec![
        vec![set("10.0.0.0/24", 9), set("fd00::/64", 1)],
        vec![set("10.1.0.0/24", 9), set("fd01::/64", 1)],
    ];
    let pool = Pool::open(dir.path(), shards).unwrap();
    let shard = |number| {
        pool.reserve(&holder(number), 0, &[])
            .map(|lease| lease.shard)
    };
    assert_eq!((shard(1).unwrap(), shard(2).unwrap()), (0, 1));
    let full = shard(3).unwrap_err().to_string();
    assert!(full.ends_with("fd00::1-fd00::2, fd01::1-fd01::2"), "{full}");
    // Numbered through all bridges.
    let last = fs::read_to_string(dir.path().join("last_reserved_ip.3")).unwrap();
    assert_eq!(last, "fd01::2");
}

#[test]
fn an_address_that_another_program_wrote_down_is_skipped_in_any_set() {
    let dir = tempfile::tempdir().unwrap();
    let sets = vec![set("10.0.0.0/24", 9), set("fd00::/64", 9)];
    let pool = Pool::open(dir.path(), vec![sets]).unwrap();
    fs::write(dir.path().join("fd00::2"), "other\r\neth0").unwrap();
    let lease = pool.reserve(&holder(1), 0, &[]).unwrap();
    assert_eq!(texts(&lease)[1], "fd00::3/64 via fd00::1");
    assert_eq!(files(dir.path()).len(), 3);
    let foreign = Holder {
        container_id: "other".into(),
        ifname: "eth0".into(),
    };
    assert!(pool.release(&foreign).unwrap());
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn a_pod_from_before_the_second_family_keeps_the_lease_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let four = set("10.0.0.0/24", 9);
    let before = Pool::open(dir.path(), vec![vec![four.clone()]]).unwrap();
    let lease = before.reserve(&holder(1), 0, &[]).unwrap();
    let after = Pool::open(dir.path(), vec![vec![four, set("fd00::/64", 9)]]).unwrap();
    assert_eq!(after.find(&holder(1)).unwrap(), Some(lease));
    assert!(after.release(&holder(1)).unwrap());
    assert_eq!(
        after.reserve(&holder(2), 0, &[]).unwrap().addresses.len(),
        2
    );
}

#[derive(Clone, Debug)]
enum Op {
    Reserve {
        holder: usize,
        first: usize,
    },
    Release(usize),
    /// The reference plugin takes an address of a set.
    Foreign {
        shard: usize,
        set: usize,
        offset: u8,
    },
    Restart,
    Exclude {
        shard: usize,
        set: usize,
        offset: u8,
    },
}

const SHARDS: usize = 2;
const SETS: [[&str; 3]; SHARDS] = [
    ["10.0.0.0/24", "fd00::/64", "fd00:1::/64"],
    ["10.0.1.0/24", "fd00:0:0:1::/64", "fd00:1:0:1::/64"],
];

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = || (0..SHARDS, 0..3_usize, 1..9_u8);
    let op = prop_oneof![
        6 => (0..14_usize, 0..SHARDS).prop_map(|(holder, first)| Op::Reserve { holder, first }),
        4 => (0..14_usize).prop_map(Op::Release),
        1 => place().prop_map(|(shard, set, offset)| Op::Foreign { shard, set, offset }),
        1 => Just(Op::Restart),
        1 => place().prop_map(|(shard, set, offset)| Op::Exclude { shard, set, offset }),
    ];
    prop::collection::vec(op, 0..60)
}

/// What must be: who holds which address, and which ones nobody may get.
#[derive(Default)]
struct Oracle {
    held: BTreeMap<IpAddr, String>,
    excluded: BTreeSet<IpAddr>,
}

impl Oracle {
    fn is_free(&self, address: IpAddr) -> bool {
        !self.held.contains_key(&address) && !self.excluded.contains(&address)
    }

    /// Whether each set of the bridge has an address for one more pod.
    fn has_room(&self, sets: &[RangeSet]) -> bool {
        let pods = |set: &RangeSet| (1..set.len()).filter_map(|at| set.address(at)).collect();
        let all: Vec<Vec<IpAddr>> = sets.iter().map(pods).collect();
        all.iter()
            .all(|set| set.iter().any(|address| self.is_free(*address)))
    }

    /// Compares what the pool did for a new holder with what it had to do.
    fn took(&mut self, outcome: Result<Lease, NetworkError>, id: &str, shards: &[Vec<RangeSet>]) {
        match outcome {
            Ok(lease) => {
                let sets = &shards[lease.shard];
                assert_eq!(lease.addresses.len(), sets.len(), "one of each set");
                for (leased, set) in lease.addresses.iter().zip(sets) {
                    let address = leased.address.addr();
                    let position = set.position(address).expect("of its own set, in order");
                    assert!(
                        position > 0 && self.is_free(address),
                        "{address} is another's"
                    );
                    self.held.insert(address, id.to_owned());
                }
            }
            Err(error) => {
                assert!(matches!(error, NetworkError::Exhausted(_)), "{error}");
                assert!(
                    !shards.iter().any(|sets| self.has_room(sets)),
                    "there is room"
                );
            }
        }
    }
}

fn check(ops: &[Op], sizes: [u8; 3]) {
    let dir = tempfile::tempdir().unwrap();
    let shards: Vec<Vec<_>> = SETS
        .iter()
        .map(|subnets| {
            subnets
                .iter()
                .zip(sizes)
                .map(|(one, size)| set(one, size))
                .collect()
        })
        .collect();
    let mut pool = Pool::open(dir.path(), shards.clone()).unwrap();
    let mut oracle = Oracle::default();
    let at = |shard: usize, set: usize, offset: u8| {
        shards[shard][set]
            .address(u128::from(offset % sizes[set]) + 1)
            .unwrap()
    };
    for (step, op) in ops.iter().enumerate() {
        match *op {
            Op::Reserve {
                holder: number,
                first,
            } => {
                let who = holder(number);
                let outcome = pool.reserve(&who, first, &[]);
                if oracle.held.values().any(|id| *id == who.container_id) {
                    let refused = matches!(outcome, Err(NetworkError::AlreadyAttached { .. }));
                    assert!(refused, "two leases of one holder");
                } else {
                    oracle.took(outcome, &who.container_id, &shards);
                }
            }
            Op::Release(number) => {
                pool.release(&holder(number)).unwrap();
                oracle
                    .held
                    .retain(|_, id| *id != holder(number).container_id);
            }
            Op::Foreign { shard, set, offset } => {
                let address = at(shard, set, offset);
                if let Entry::Vacant(free) = oracle.held.entry(address) {
                    let id = format!("foreign{step}");
                    let file = dir.path().join(address.to_string());
                    fs::write(file, format!("{id}\r\neth0")).unwrap();
                    free.insert(id);
                }
            }
            Op::Restart => {
                pool = Pool::open(dir.path(), shards.clone()).unwrap();
                oracle
                    .excluded
                    .iter()
                    .for_each(|address| pool.exclude(*address));
            }
            Op::Exclude { shard, set, offset } => {
                let address = at(shard, set, offset);
                if oracle.is_free(address) {
                    pool.exclude(address);
                    oracle.excluded.insert(address);
                }
            }
        }
        assert_eq!(files(dir.path()), oracle.held, "after step {step}: {op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn leases_of_several_sets_are_whole_and_no_address_has_two_holders(
        ops in ops(),
        sizes in [1..9_u8, 1..9_u8, 1..9_u8],
    ) {
        check(&ops, sizes);
    }
}
