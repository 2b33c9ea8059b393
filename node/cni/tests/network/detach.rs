//! DEL, restarts, GC: nothing stays, nothing is lost.

use serde_json::json;
use swiftlet_cni::shim_server::start;

use super::node::{Namespace, Node, address, reaches};

#[test]
fn del_is_idempotent_whatever_is_missing() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.del("c1", &pod.path());
    node.del("c1", "");
    node.del("c1", "/nowhere/netns");
    node.del("never-seen", "");
    assert!(node.reserved().is_empty());
}

#[test]
fn the_pair_goes_with_the_namespace() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.del("c1", &pod.path());
    drop(pod);
    wait_for_no_veth(&node);
}

/// The kernel cleans namespaces up in the background; this polls, because it tells nobody.
pub(crate) fn wait_for_no_veth(node: &Node) {
    wait_for_veths(node, 0);
}

/// The pod's pair goes, as with its namespace.
pub(crate) fn unplug(node: &Node, result: &serde_json::Value) {
    let name = result["interfaces"][1]["name"].as_str().unwrap();
    node.host.output(&["ip", "link", "del", name]);
}

pub(crate) fn wait_for_veths(node: &Node, count: usize) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while node.host.veths().len() != count {
        assert!(
            std::time::Instant::now() < limit,
            "left: {:?}",
            node.host.veths()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_namespace_that_outlives_its_del_can_be_attached_again() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.del("c1", &pod.path());
    let result = node.add("c1", &pod).unwrap();
    assert_eq!(node.host.veths().len(), 1);
    assert!(reaches(&node.host, &pod, address(&result)));
}

#[test]
fn an_attached_container_is_not_attached_twice() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    let error = node.add("c1", &pod).unwrap_err();
    assert_eq!(error["code"], 103);
    assert_eq!(node.reserved().len(), 1);
    node.ask("CHECK", "c1", &pod.path()).unwrap();
}

#[test]
fn a_restart_keeps_live_pods_and_frees_dead_ones() {
    let mut node = Node::new();
    let (live, dead) = (Namespace::new(), Namespace::new());
    node.add("live", &live).unwrap();
    node.add("dead", &dead).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    let fresh = Namespace::new();
    node.add("fresh", &fresh).unwrap();
    drop(dead);
    wait_for_veths(&node, 2);
    // The list is older than `fresh`, which must survive it all the same.
    assert_eq!(
        node.handle.as_ref().unwrap().reconcile(&["live"]).unwrap(),
        1
    );
    assert_eq!(node.reserved(), ["10.88.0.2", "10.88.0.4"]);
    node.ask("CHECK", "live", &live.path()).unwrap();
    node.ask("CHECK", "fresh", &fresh.path()).unwrap();
    assert!(reaches(&live, &fresh, "10.88.0.4".parse().unwrap()));
}

#[test]
fn what_a_crash_leaves_between_two_steps_is_freed_by_del() {
    let mut node = Node::new();
    node.handle.take().unwrap().shutdown();
    // After the address was written down, before there was a link.
    let file = node.dir.path().join("ipam/pods/10.88.0.9");
    std::fs::write(&file, "c1\r\neth0").unwrap();
    node.start();
    node.del("c1", "");
    assert!(node.reserved().is_empty());
    // After everything was done, before the answer.
    let pod = Namespace::new();
    node.add("c2", &pod).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    node.del("c2", &pod.path());
    assert!(node.reserved().is_empty());
    drop(pod);
    wait_for_no_veth(&node);
}

#[test]
fn addresses_outside_of_a_changed_range_are_freed_too() {
    let mut node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.handle.take().unwrap().shutdown();
    node.conf["ipam"]["subnet"] = json!("10.99.0.0/16");
    node.start();
    node.del("c1", "");
    assert!(node.reserved().is_empty());
}

#[test]
fn gc_frees_what_no_valid_attachment_holds() {
    let node = Node::new();
    let pods = [Namespace::new(), Namespace::new()];
    node.add("c0", &pods[0]).unwrap();
    node.add("c1", &pods[1]).unwrap();
    let mut conf = node.conf.clone();
    conf["cniVersion"] = json!("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    node.ask_with("GC", "", "", &conf).unwrap();
    assert_eq!(node.reserved(), ["10.88.0.3"]);
    node.ask_with("STATUS", "", "", &conf).unwrap();
}

#[test]
fn a_second_node_on_the_same_socket_is_refused_and_a_stale_socket_replaced() {
    let mut node = Node::new();
    assert!(start(node.options()).is_err());
    node.handle.take().unwrap().shutdown();
    drop(std::os::unix::net::UnixListener::bind(node.socket()).unwrap());
    node.start();
    node.del("c1", "");
}
