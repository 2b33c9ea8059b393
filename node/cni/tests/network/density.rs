//! A thousand sandboxes and more, and what a full bridge says.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::node::{Namespace, Node, address, reaches};

/// More than one bridge can hold.
const SANDBOXES: usize = 1100;
const BRIDGES: usize = 3;
/// Ports of one bridge (`BR_MAX_PORTS`; port 0 is none).
const PORTS_MAX: usize = 1023;

#[test]
fn eleven_hundred_sandboxes_on_three_bridges_reach_each_other() {
    // A namespace is a descriptor here.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let node = Node::with(|conf| conf["bridges"] = json!(BRIDGES));
    let pods: Vec<_> = (0..SANDBOXES).map(|_| Namespace::new()).collect();
    let mut by_bridge: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut addresses = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let result = node.add(&format!("c{index}"), pod).unwrap();
        let bridge = result["interfaces"][0]["name"].as_str().unwrap().to_owned();
        by_bridge.entry(bridge).or_default().push(index);
        addresses.push(address(&result));
    }
    assert_eq!(node.host.veths().len(), SANDBOXES);
    assert_eq!(node.reserved().len(), SANDBOXES);
    let used: Vec<_> = by_bridge.values().collect();
    assert_eq!(used.len(), BRIDGES);
    // The last one of each bridge reaches the first one of each, its own among them.
    for from in &used {
        for to in &used {
            let (from, to) = (from[from.len() - 1], to[0]);
            assert!(
                reaches(&pods[from], &pods[to], addresses[to]),
                "{from} to {to}"
            );
        }
    }
    for index in 0..SANDBOXES {
        node.del(&format!("c{index}"), "");
    }
    assert!(node.reserved().is_empty());
}

#[test]
fn a_full_bridge_says_so_with_its_limit_and_leaves_nothing() {
    let node = Node::new();
    let first = Namespace::new();
    node.add("first", &first).unwrap();
    fill(&node, "sw0");
    let pod = Namespace::new();
    let error = node.add("c1", &pod).unwrap_err();
    assert_eq!(error["code"], 107);
    let message = error["msg"].as_str().unwrap();
    let limit = PORTS_MAX.to_string();
    assert!(
        message.contains("sw0") && message.contains(&limit),
        "{message}"
    );
    assert_eq!(node.reserved(), ["10.88.0.2"]);
    assert_eq!(pod.links(), ["lo"]);
}

#[test]
fn a_pod_whose_bridge_is_full_gets_another_one() {
    let node = Node::with(|conf| conf["bridges"] = json!(2));
    // Until both bridges are there.
    let pods: Vec<_> = (0..16).map(|_| Namespace::new()).collect();
    let bridge_of = |id: &str, pod: &Namespace| {
        let result = node.add(id, pod).unwrap();
        result["interfaces"][0]["name"].as_str().unwrap().to_owned()
    };
    for (index, pod) in pods[..8].iter().enumerate() {
        bridge_of(&format!("c{index}"), pod);
    }
    fill(&node, "sw0");
    for (index, pod) in pods[8..].iter().enumerate() {
        assert_eq!(bridge_of(&format!("d{index}"), pod), "sw1");
    }
    assert_eq!(node.reserved().len(), pods.len());
}

/// Gives the bridge interfaces until it takes no more.
fn fill(node: &Node, bridge: &str) {
    let link = |number: usize| {
        format!("link add fill{number} master {bridge} type veth peer name peer{number}\n")
    };
    let batch: String = (0..PORTS_MAX).map(link).collect();
    node.host.run(|| {
        let mut child = Command::new("ip")
            .args(["-force", "-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(batch.as_bytes()).unwrap();
        drop(stdin);
        // The last ones are refused.
        assert!(!child.wait().unwrap().success());
    });
}
