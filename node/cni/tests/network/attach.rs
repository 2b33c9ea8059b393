//! ADD and CHECK.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::json;
use swiftlet_cni::observer::NetworkAttached;
use swiftlet_cni::shim_server::start;

use super::node::{Namespace, Node, address, reaches};

#[test]
fn a_pod_gets_an_interface_an_address_and_a_default_route() {
    let node = Node::with(|conf| conf["mtu"] = json!(1400));
    let pod = Namespace::new();
    let result = node.add("c1", &pod).unwrap();

    assert_eq!(result["cniVersion"], "1.0.0");
    assert_eq!(result["ips"][0]["address"], "10.88.0.2/16");
    assert_eq!(result["ips"][0]["gateway"], "10.88.0.1");
    assert_eq!(result["interfaces"][2]["name"], "eth0");
    let eth0 = &pod.ip(&["addr", "show", "eth0"])[0];
    assert_eq!(eth0["mtu"], 1400);
    assert_eq!(eth0["address"], result["interfaces"][2]["mac"]);
    assert_eq!(eth0["addr_info"][0]["local"], "10.88.0.2");
    let route = &pod.ip(&["-4", "route", "show", "default"])[0];
    assert_eq!(
        (&route["gateway"], &route["dev"]),
        (&json!("10.88.0.1"), &json!("eth0"))
    );
    let lo = &pod.ip(&["link", "show", "lo"])[0];
    assert!(lo["flags"].as_array().unwrap().contains(&json!("UP")));
    let bridge = &node.host.ip(&["link", "show", "sw0"])[0];
    assert_eq!(bridge["address"], result["interfaces"][0]["mac"]);
    assert_eq!(
        node.host.veths(),
        [result["interfaces"][1]["name"].as_str().unwrap()]
    );
    assert_eq!(node.reserved(), ["10.88.0.2"]);
    node.ask("CHECK", "c1", &pod.path()).unwrap();
}

#[test]
fn two_pods_and_the_host_reach_each_other() {
    let node = Node::new();
    let (one, two) = (Namespace::new(), Namespace::new());
    let first = address(&node.add("c1", &one).unwrap());
    let second = address(&node.add("c2", &two).unwrap());
    assert!(reaches(&one, &two, second));
    assert!(reaches(&two, &one, first));
    assert!(reaches(&node.host, &one, first));
    assert!(reaches(&one, &node.host, "10.88.0.1".parse().unwrap()));
}

#[test]
fn pods_on_different_bridges_reach_each_other() {
    let node = Node::with(|conf| conf["bridges"] = json!(2));
    let pods: Vec<_> = (0..6).map(|_| Namespace::new()).collect();
    let mut bridges = BTreeSet::new();
    let mut addresses = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let result = node.add(&format!("c{index}"), pod).unwrap();
        bridges.insert(result["interfaces"][0]["name"].as_str().unwrap().to_owned());
        addresses.push(address(&result));
    }
    assert_eq!(bridges.into_iter().collect::<Vec<_>>(), ["sw0", "sw1"]);
    for (pod, address) in pods.iter().zip(&addresses) {
        assert!(reaches(&pods[0], pod, *address), "{address}");
    }
}

#[test]
fn a_failed_add_leaves_nothing() {
    let node = Node::new();
    let pod = Namespace::new();
    pod.output(&[
        "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other",
    ]);
    let error = node.add("c1", &pod).unwrap_err();
    assert_eq!(error["code"], 100);
    assert!(error["msg"].as_str().unwrap().contains("veth"), "{error}");
    assert!(node.host.veths().is_empty() && node.reserved().is_empty());
    let missing = node.ask("ADD", "c1", "/nowhere/netns").unwrap_err();
    assert_eq!(missing["code"], 3);
    // A step late in the batch fails: the link is undone too.
    let node = Node::with(|conf| {
        conf["ipam"]["routes"] = json!([{ "dst": "10.9.0.0/16", "gw": "192.0.2.1" }]);
    });
    let pod = Namespace::new();
    assert!(
        node.add("c1", &pod).unwrap_err()["msg"]
            .as_str()
            .unwrap()
            .contains("route")
    );
    assert!(node.host.veths().is_empty() && node.reserved().is_empty());
    assert_eq!(pod.links(), ["lo"]);
}

#[test]
fn a_bridge_of_another_subnet_is_refused_and_one_in_the_subnet_adopted() {
    let node = Node::new();
    node.host
        .output(&["ip", "link", "add", "sw0", "type", "bridge"]);
    node.host
        .output(&["ip", "address", "add", "10.1.0.1/24", "dev", "sw0"]);
    let pod = Namespace::new();
    let error = node.add("c1", &pod).unwrap_err();
    let message = error["msg"].as_str().unwrap();
    assert!(
        message.contains("10.1.0.1/24") && message.contains("10.88.0.1/16"),
        "{message}"
    );
    assert!(node.reserved().is_empty());

    node.host.output(&["ip", "address", "flush", "dev", "sw0"]);
    node.host
        .output(&["ip", "address", "add", "10.88.0.2/16", "dev", "sw0"]);
    // The bridge's own address is not given to a pod, and the network's gateway is added to it.
    assert_eq!(
        address(&node.add("c1", &pod).unwrap()).to_string(),
        "10.88.0.3"
    );
    assert!(reaches(&pod, &node.host, "10.88.0.1".parse().unwrap()));
}

#[test]
fn a_bridge_that_was_taken_away_is_made_again() {
    let node = Node::new();
    let (one, two) = (Namespace::new(), Namespace::new());
    node.add("c1", &one).unwrap();
    node.host.output(&["ip", "link", "del", "sw0"]);
    let result = node.add("c2", &two).unwrap();
    assert!(reaches(&node.host, &two, address(&result)));
}

#[test]
fn an_exhausted_range_is_named_and_a_freed_address_serves_again() {
    let node = Node::with(|conf| {
        conf["ipam"]["rangeStart"] = json!("10.88.0.10");
        conf["ipam"]["rangeEnd"] = json!("10.88.0.11");
    });
    let pods = [Namespace::new(), Namespace::new(), Namespace::new()];
    node.add("c0", &pods[0]).unwrap();
    node.add("c1", &pods[1]).unwrap();
    let error = node.add("c2", &pods[2]).unwrap_err();
    let wanted = "no IP addresses available in range set: 10.88.0.10-10.88.0.11";
    assert_eq!(error["msg"], wanted);
    node.del("c0", &pods[0].path());
    assert_eq!(
        address(&node.add("c2", &pods[2]).unwrap()).to_string(),
        "10.88.0.10"
    );
}

#[test]
fn check_finds_what_is_missing() {
    let node = Node::new();
    let pod = Namespace::new();
    let failed = |node: &Node| {
        let error = node.ask("CHECK", "c1", &pod.path()).unwrap_err();
        assert_eq!(error["code"], 104);
        error["msg"].as_str().unwrap().to_owned()
    };
    assert!(failed(&node).contains("no address is reserved"));
    node.add("c1", &pod).unwrap();
    pod.output(&["ip", "route", "del", "default"]);
    assert!(failed(&node).contains("route to 0.0.0.0/0"));
    pod.output(&["ip", "address", "flush", "dev", "eth0"]);
    assert!(failed(&node).contains("lacks the address 10.88.0.2/16"));
    pod.output(&["ip", "link", "set", "eth0", "down"]);
    assert!(failed(&node).contains("is down"));
    pod.output(&["ip", "link", "del", "eth0"]);
    assert!(failed(&node).contains("no interface eth0"));
}

#[test]
fn the_observer_is_told_which_pod_was_attached() {
    let mut node = Node::new();
    node.handle.take().unwrap().shutdown();
    let seen: Arc<Mutex<Vec<NetworkAttached>>> = Arc::default();
    let mut options = node.options();
    let writer = Arc::clone(&seen);
    options.observer = Some(Arc::new(move |event| writer.lock().unwrap().push(event)));
    node.handle = Some(start(options).unwrap());
    let pod = Namespace::new();
    let result = node.add("c1", &pod).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].container_id.as_str(), seen[0].pod.uid.as_str()),
        ("c1", "u-1")
    );
    assert_eq!(seen[0].addresses, [address(&result)]);
}

#[test]
fn masquerade_rules_are_those_that_nft_lists_and_teardown_removes_all() {
    let mut node = Node::with(|conf| conf["ipMasq"] = json!(true));
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.add("c2", &Namespace::new()).unwrap();
    let table = node
        .host
        .output(&["nft", "list", "table", "ip", "swiftlet"]);
    let lines: Vec<_> = table.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "table ip swiftlet {",
            "chain postrouting {",
            "type nat hook postrouting priority srcnat; policy accept;",
            "ip saddr 10.88.0.0/16 ip daddr != 10.88.0.0/16 ip daddr != 224.0.0.0/4 masquerade \
             comment \"10.88.0.0/16 pods\"",
            "}",
            "}",
        ]
    );
    node.del("c1", "");
    node.del("c2", "");
    node.handle.take().unwrap().teardown().unwrap();
    assert_eq!(node.host.output(&["nft", "list", "ruleset"]).trim(), "");
    assert_eq!(node.host.links(), ["lo"]);
    assert!(!node.dir.path().join("ipam/pods").exists());
    assert!(!node.socket().exists());
}
