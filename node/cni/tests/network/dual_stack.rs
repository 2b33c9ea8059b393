//! Pods with an address of each family, or of IPv6 alone.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::detach::wait_for_veths;
use super::node::{Namespace, Node, reaches};

const SIX: &str = "fd00:88::/64";

/// A conf whose pods have an address of each set.
fn dual(conf: &mut Value) {
    conf["ipam"]["ranges"] = json!([[{ "subnet": SIX }]]);
    conf["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]);
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap().iter();
    let texts = ips.map(|ip| ip["address"].as_str().unwrap());
    texts
        .map(|text| text.split('/').next().unwrap().parse().unwrap())
        .collect()
}

/// What `ip` tells of the interface's address of IPv6 that is not its own invention.
fn global_v6(namespace: &Namespace, link: &str) -> Value {
    let shown = namespace.ip(&["-6", "addr", "show", link, "scope", "global"]);
    shown[0]["addr_info"][0].clone()
}

#[test]
fn a_pod_gets_an_address_a_gateway_and_a_route_of_each_family() {
    let node = Node::with(dual);
    let pod = Namespace::new();
    let result = node.add("c1", &pod).unwrap();
    assert_eq!(
        result["ips"],
        json!([
            { "interface": 2, "address": "10.88.0.2/16", "gateway": "10.88.0.1" },
            { "interface": 2, "address": "fd00:88::2/64", "gateway": "fd00:88::1" },
        ])
    );
    assert_eq!(
        result["routes"],
        json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }])
    );
    assert_eq!(result["interfaces"][2]["mac"], "0a:58:0a:58:00:02");
    for (namespace, link, local) in [
        (&pod, "eth0", "fd00:88::2"),
        (&node.host, "sw0", "fd00:88::1"),
    ] {
        let six = global_v6(namespace, link);
        assert_eq!(six["local"], local);
        assert_eq!(six["prefixlen"], 64);
        assert_eq!(six["nodad"], true, "usable at once: {six}");
        assert!(six["tentative"].is_null(), "{six}");
    }
    let routes = pod.ip(&["-6", "route", "show", "default"]);
    assert_eq!(routes.len(), 1, "{routes:?}");
    assert_eq!(routes[0]["gateway"], "fd00:88::1");
    assert_eq!(node.reserved(), ["10.88.0.2", "fd00:88::2"]);
    let last = node.dir.path().join("ipam/pods/last_reserved_ip.1");
    assert_eq!(std::fs::read_to_string(last).unwrap(), "fd00:88::2");
    node.ask("CHECK", "c1", &pod.path()).unwrap();
    node.del("c1", &pod.path());
    assert!(node.reserved().is_empty());
}

#[test]
fn check_finds_what_is_missing_of_the_second_family() {
    let node = Node::with(dual);
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    let failed = || {
        let error = node.ask("CHECK", "c1", &pod.path()).unwrap_err();
        assert_eq!(error["code"], 104);
        error["msg"].as_str().unwrap().to_owned()
    };
    pod.output(&["ip", "-6", "route", "del", "default"]);
    assert!(failed().contains("route to ::/0"));
    pod.output(&["ip", "-6", "addr", "del", "fd00:88::2/64", "dev", "eth0"]);
    assert!(failed().contains("lacks the address fd00:88::2/64"));
}

#[test]
fn pods_of_several_bridges_and_the_host_reach_each_other_by_both_families() {
    let node = Node::with(|conf| {
        dual(conf);
        conf["bridges"] = json!(2);
    });
    let pods: Vec<_> = (0..6).map(|_| Namespace::new()).collect();
    let mut bridges = std::collections::BTreeSet::new();
    let mut all = Vec::new();
    for (index, pod) in pods.iter().enumerate() {
        let result = node.add(&format!("c{index}"), pod).unwrap();
        bridges.insert(result["interfaces"][0]["name"].to_string());
        all.push(addresses(&result));
    }
    assert_eq!(bridges.len(), 2);
    for (pod, addresses) in pods.iter().zip(&all) {
        for address in addresses {
            assert!(reaches(&pods[0], pod, *address), "{address} from a pod");
            assert!(
                reaches(&node.host, pod, *address),
                "{address} from the host"
            );
        }
    }
    for gateway in ["fd00:88::1", "fd00:88:0:0:8000::1"] {
        assert!(
            reaches(&pods[0], &node.host, gateway.parse().unwrap()),
            "{gateway}"
        );
    }
}

#[test]
fn ipv6_is_switched_on_where_a_pod_has_an_address_of_it_and_nowhere_else() {
    let disabled = |pod: &Namespace, link: &str| {
        let path = format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6");
        pod.output(&["cat", &path]).trim().to_owned()
    };
    let switched_off = || {
        let pod = Namespace::new();
        for scope in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            pod.run(|| std::fs::write(&path, "1").unwrap());
        }
        pod
    };
    let node = Node::with(dual);
    // The host's new bridges are without IPv6, too.
    let default = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    node.host.run(|| std::fs::write(default, "1").unwrap());
    let (one, two) = (switched_off(), switched_off());
    node.add("c1", &one).unwrap();
    let second = addresses(&node.add("c2", &two).unwrap());
    assert_eq!(
        (disabled(&one, "eth0"), disabled(&one, "lo")),
        ("0".into(), "0".into())
    );
    assert!(reaches(&one, &two, second[1]));
    let ra = one.output(&["cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra"]);
    assert_eq!(ra.trim(), "0", "no other pod is its router");

    let node = Node::new();
    let pod = switched_off();
    node.add("c1", &pod).unwrap();
    assert_eq!(disabled(&pod, "eth0"), "1");
    let forwarding = "/proc/sys/net/ipv6/conf/all/forwarding";
    assert_eq!(node.host.output(&["cat", forwarding]).trim(), "0");
}

#[test]
fn a_pod_may_have_ipv6_alone() {
    let node = Node::with(|conf| {
        conf["ipam"]["subnet"] = json!(SIX);
        conf["ipam"]["routes"] = json!([{ "dst": "::/0" }]);
        conf["cniVersion"] = json!("0.4.0");
    });
    let (one, two) = (Namespace::new(), Namespace::new());
    let first = node.add("c1", &one).unwrap();
    assert_eq!(
        first["ips"],
        json!([{
            "version": "6", "interface": 2, "address": "fd00:88::2/64", "gateway": "fd00:88::1",
        }])
    );
    let second = addresses(&node.add("c2", &two).unwrap());
    assert!(reaches(&one, &two, second[0]));
    assert!(one.ip(&["-4", "addr", "show", "eth0"]).is_empty());
    node.ask("CHECK", "c1", &one.path()).unwrap();
}

#[test]
fn an_add_whose_second_set_is_full_leaves_nothing() {
    let node = Node::with(|conf| {
        dual(conf);
        conf["ipam"]["ranges"][0][0]["rangeEnd"] = json!("fd00:88::2");
    });
    let (one, two) = (Namespace::new(), Namespace::new());
    node.add("c1", &one).unwrap();
    let error = node.add("c2", &two).unwrap_err();
    let wanted = "no IP addresses available in range set: fd00:88::1-fd00:88::2";
    assert_eq!(
        (&error["code"], &error["msg"]),
        (&json!(102), &json!(wanted))
    );
    assert_eq!(node.reserved(), ["10.88.0.2", "fd00:88::2"]);
    assert_eq!(
        (node.host.veths().len(), two.links()),
        (1, vec!["lo".to_owned()])
    );
    node.del("c1", &one.path());
    let again = node.add("c2", &two).unwrap();
    assert_eq!(addresses(&again)[1].to_string(), "fd00:88::2");
}

#[test]
fn a_restart_keeps_both_addresses_of_live_pods_and_frees_both_of_dead_ones() {
    let mut node = Node::with(dual);
    let (live, dead) = (Namespace::new(), Namespace::new());
    node.add("live", &live).unwrap();
    node.add("dead", &dead).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    drop(dead);
    wait_for_veths(&node, 1);
    let freed = node.handle.as_ref().unwrap().reconcile(&["live"]).unwrap();
    assert_eq!(freed, 2, "addresses");
    assert_eq!(node.reserved(), ["10.88.0.2", "fd00:88::2"]);
    node.ask("CHECK", "live", &live.path()).unwrap();
    let fresh = Namespace::new();
    let fresh_addresses = addresses(&node.add("fresh", &fresh).unwrap());
    assert!(reaches(&live, &fresh, fresh_addresses[1]));
}

#[test]
fn a_pod_from_before_the_second_family_stays_attached_and_goes_as_a_whole() {
    let mut node = Node::new();
    let pod = Namespace::new();
    node.add("old", &pod).unwrap();
    node.handle.take().unwrap().shutdown();
    dual(&mut node.conf);
    node.start();
    node.ask("CHECK", "old", &pod.path()).unwrap();
    let fresh = Namespace::new();
    let both = addresses(&node.add("fresh", &fresh).unwrap());
    assert!(reaches(&fresh, &pod, "10.88.0.2".parse().unwrap()));
    assert_eq!(both.len(), 2);
    node.del("old", &pod.path());
    assert_eq!(node.reserved(), ["10.88.0.3", "fd00:88::2"]);
}
