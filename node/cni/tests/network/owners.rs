//! What is somebody else's, and what networks share.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;

use nix::mount::{MntFlags, umount2};
use serde_json::json;

use super::detach::wait_for_no_veth;
use super::leftovers::{mounted, node_with, sweep};
use super::node::{Namespace, Node, address, reaches};

/// More than what one sweep removes.
const MANY: usize = 70;

/// Does something while a thread is in the namespace.
fn while_used(path: &str, work: impl FnOnce()) {
    let (inside, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, or the thread would wait for ever.
        let leave = leave;
        scope.spawn(move || {
            let namespace = swiftlet_sys::netns::open(path.as_ref()).unwrap();
            let stay = move || {
                inside.send(()).unwrap();
                left.recv().unwrap_or_default();
            };
            swiftlet_sys::netns::run_in(namespace.as_fd(), stay).unwrap();
        });
        entered.recv().unwrap();
        work();
        drop(leave);
    });
}

#[test]
fn a_pod_that_the_runtime_does_not_list_keeps_its_address_while_somebody_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path());
    let mut conf = node.conf.clone();
    let port = json!({ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" });
    conf["runtimeConfig"] = json!({ "portMappings": [port] });
    // One that the runtime made, one that was made by hand and mounted, one that is nowhere.
    let listed = mounted(dir.path(), "cni-used");
    let by_hand = mounted(dir.path(), "by-hand");
    let hidden = Namespace::new();
    node.ask_with("ADD", "listed", &listed, &conf).unwrap();
    node.ask("ADD", "by-hand", &by_hand).unwrap();
    node.ask("ADD", "hidden", &hidden.path()).unwrap();
    while_used(&listed, || {
        while_used(&hidden.path(), || {
            for _ in 0..3 {
                assert_eq!(sweep(&node, &[]), 0);
            }
            assert_eq!(node.reserved().len(), 3);
            assert_eq!(node.host.veths().len(), 3);
            let rules = node.host.output(&["nft", "list", "ruleset"]);
            assert!(rules.contains("10.88.0.2"), "{rules}");
        });
    });
    // Now that nobody is in there any more.
    assert_eq!(sweep(&node, &[]), 2);
    assert_eq!(node.reserved(), ["10.88.0.3"]);
    let held = node.handle.as_ref().unwrap().sweeper().holding();
    assert_eq!(
        node.handle
            .as_ref()
            .unwrap()
            .sweeper()
            .free_lost(held, &[])
            .unwrap(),
        0
    );
    umount2(by_hand.as_str(), MntFlags::MNT_DETACH).unwrap();
    wait_for_no_veth(&node);
}

#[test]
fn pairs_that_stay_do_not_keep_the_others_from_going() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path());
    let [used, dead] = ["cni-used", "cni-dead"].map(|name| mounted(dir.path(), name));
    // The bridge.
    node.ask("ADD", "first", &used).unwrap();
    node.del("first", "");
    let make = format!(
        "for i in $(seq 100 {}); do echo link add veth00000000$i master sw0 type veth \
         peer name p$i netns {used}; done | ip -batch -",
        100 + MANY
    );
    node.host.output(&["sh", "-c", &make]);
    node.ask("ADD", "dead", &dead).unwrap();
    node.del("dead", "");
    while_used(&used, || {
        sweep(&node, &[]);
        assert!(Path::new(&dead).exists());
        sweep(&node, &[]);
        assert!(Path::new(&used).exists());
        assert!(!Path::new(&dead).exists());
    });
    sweep(&node, &[]);
    assert!(!Path::new(&used).exists());
    wait_for_no_veth(&node);
}

#[test]
fn the_pairs_of_a_network_that_nobody_asked_for_since_the_start_stay() {
    let mut node = Node::new();
    let pod = Namespace::new();
    let mut other = node.conf.clone();
    other["name"] = json!("other");
    let result = node.ask_with("ADD", "c1", &pod.path(), &other).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    for _ in 0..3 {
        sweep(&node, &[]);
    }
    assert!(reaches(&node.host, &pod, address(&result)));
}

#[test]
fn an_address_of_a_bridge_that_two_networks_share_is_no_pods_in_either() {
    let node = Node::new();
    let shared = ["ip", "addr", "add", "10.88.0.2/16", "dev", "sw0"];
    node.host
        .output(&["ip", "link", "add", "sw0", "type", "bridge"]);
    node.host.output(&shared);
    let mut other = node.conf.clone();
    other["name"] = json!("other");
    let pods = [(); 2].map(|()| Namespace::new());
    let first = node.add("c1", &pods[0]).unwrap();
    let second = node.ask_with("ADD", "c2", &pods[1].path(), &other);
    for result in [first, second.unwrap()] {
        assert_eq!(address(&result).to_string(), "10.88.0.3");
    }
}

#[test]
fn a_sweep_makes_the_bridge_as_it_was_and_does_not_make_one_that_is_gone() {
    let node = Node::new();
    let pod = Namespace::new();
    let result = node.add("c1", &pod).unwrap();
    for change in [
        "ip addr del 10.88.0.1/16 dev sw0",
        "ip link set sw0 down",
        "sysctl -qw net.ipv4.ip_forward=0",
    ] {
        let words: Vec<_> = change.split(' ').collect();
        node.host.output(&words);
    }
    sweep(&node, &["c1"]);
    let forward = node.host.output(&["cat", "/proc/sys/net/ipv4/ip_forward"]);
    assert_eq!(forward.trim(), "1");
    assert!(reaches(&node.host, &pod, address(&result)));
    assert!(reaches(&pod, &node.host, "10.88.0.1".parse().unwrap()));
    node.host.output(&["ip", "link", "del", "sw0"]);
    sweep(&node, &["c1"]);
    assert!(!node.host.links().contains(&"sw0".to_owned()));
}
