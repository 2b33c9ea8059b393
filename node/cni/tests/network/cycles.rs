//! Many pods: one after the other, and at once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::detach::wait_for_no_veth;
use super::node::{Namespace, Node, address};

const CYCLES: usize = 100;
const AT_ONCE: usize = 32;

#[test]
fn a_hundred_cycles_leave_no_link_and_no_address() {
    let node = Node::new();
    let mut adds = Vec::new();
    for cycle in 0..CYCLES {
        let pod = Namespace::new();
        let id = format!("c{cycle}");
        let start = Instant::now();
        node.add(&id, &pod).unwrap();
        adds.push(start.elapsed());
        node.del(&id, &pod.path());
        node.del(&id, "");
    }
    wait_for_no_veth(&node);
    assert!(node.reserved().is_empty());
    print_percentiles("ADD, one at a time, namespaces closing", adds);
}

#[test]
fn pods_one_after_the_other_are_all_attached() {
    let node = Node::new();
    let pods: Vec<_> = (0..CYCLES).map(|_| Namespace::new()).collect();
    let mut adds = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let start = Instant::now();
        node.add(&format!("c{index}"), pod).unwrap();
        adds.push(start.elapsed());
    }
    assert_eq!(node.host.veths().len(), CYCLES);
    print_percentiles("ADD, one at a time, no namespace closing", adds);
}

#[test]
fn pods_at_once_get_addresses_of_their_own() {
    let node = Node::new();
    let pods: Vec<_> = (0..AT_ONCE).map(|_| Namespace::new()).collect();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let node = &node;
        let threads: Vec<_> = pods
            .iter()
            .enumerate()
            .map(|(index, pod)| {
                scope.spawn(move || {
                    let start = Instant::now();
                    let result = node.add(&format!("c{index}"), pod).unwrap();
                    (address(&result), start.elapsed())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let addresses: BTreeSet<_> = outcomes.iter().map(|(address, _)| *address).collect();
    assert_eq!(addresses.len(), AT_ONCE);
    assert_eq!(node.host.veths().len(), AT_ONCE);
    assert_eq!(node.reserved().len(), AT_ONCE);
    print_percentiles(
        "ADD, 32 at once",
        outcomes.into_iter().map(|(_, took)| took).collect(),
    );
}

fn print_percentiles(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{what}: p50 {:?}, p99 {:?}, n {}",
        at(50),
        at(99),
        times.len()
    );
}
