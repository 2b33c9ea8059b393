//! Chains: this plugin first, reference plugins behind it, and what a plugin before leaves.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::node::{Namespace, Node, address, reaches};
use super::runtime::Runtime;
use super::state::host_end;

const PATIENCE: Duration = Duration::from_secs(3);
const OTHER_MAC: &str = "02:00:00:00:00:42";

/// This plugin, and others behind it. They write down what they changed in the test's folder.
fn behind<'a>(node: &'a Node, others: &[Value]) -> Runtime<'a> {
    let mut plugins = vec![node.conf.clone()];
    plugins.extend_from_slice(others);
    Runtime::new(&node.host, &plugins)
}

fn message(error: &Value) -> &str {
    error["msg"].as_str().unwrap()
}

#[test]
fn tuning_changes_what_this_plugin_made_and_check_expects_the_change() {
    let node = Node::new();
    let tuning = json!({
        "type": "tuning", "mac": OTHER_MAC, "mtu": 1400, "dataDir": node.dir.path(),
        "sysctl": { "net.core.somaxconn": "500" },
    });
    let runtime = behind(&node, &[tuning]);
    let pod = Namespace::new();
    let result = runtime.add("c1", &pod).unwrap();
    assert_eq!(result["interfaces"][2]["mac"], OTHER_MAC);
    assert_eq!(pod.ip(&["link", "show", "eth0"])[0]["address"], OTHER_MAC);
    assert_eq!(
        pod.output(&["cat", "/proc/sys/net/core/somaxconn"]),
        "500\n"
    );
    runtime.check("c1", &pod).unwrap();
    assert!(reaches(&node.host, &pod, address(&result)));
    runtime.del("c1", &pod.path()).unwrap();
    runtime.del("c1", "").unwrap();
    assert!(node.reserved().is_empty());
}

#[test]
fn portmap_behind_this_plugin_leads_to_its_pod_until_del() {
    let node = Node::new();
    let portmap = json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    let mut runtime = behind(&node, &[portmap]);
    let port = json!({ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" });
    runtime.offers = json!({ "portMappings": [port] });
    let pod = Namespace::new();
    // No CHECK: portmap 1.1 fails its own for every pod that has no address of IPv6.
    runtime.add("c1", &pod).unwrap();
    let _server = pod.run(|| TcpListener::bind(("0.0.0.0", 80)).unwrap());
    let asks = || {
        let at = SocketAddr::from(([10, 88, 0, 1], 8080));
        node.host
            .run(|| TcpStream::connect_timeout(&at, PATIENCE).is_ok())
    };
    assert!(asks());
    runtime.del("c1", &pod.path()).unwrap();
    assert!(!asks());
    assert!(node.reserved().is_empty());
}

#[test]
fn bandwidth_behind_this_plugin_shapes_the_pair_that_it_made() {
    let node = Node::new();
    let bandwidth = json!({
        "type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 800_000,
        "egressRate": 1_000_000, "egressBurst": 800_000,
    });
    let runtime = behind(&node, &[bandwidth]);
    let pod = Namespace::new();
    let result = runtime.add("c1", &pod).unwrap();
    // Its own interface comes fourth in the result, which CHECK passes over.
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 4);
    let end = host_end(&node.host, &pod);
    assert_eq!(result["interfaces"][1]["name"], end);
    let shaped = node.host.output(&["tc", "qdisc", "show", "dev", &end]);
    assert!(
        shaped.contains("tbf") && shaped.contains("rate 1Mbit"),
        "{shaped}"
    );
    runtime.check("c1", &pod).unwrap();
    runtime.del("c1", &pod.path()).unwrap();
    assert!(node.reserved().is_empty());
}

#[test]
fn firewall_lets_the_pod_of_this_plugin_through() {
    let node = Node::new();
    node.host.output(&["iptables", "-P", "FORWARD", "DROP"]);
    let outside = Namespace::new();
    node.host.output(&[
        "ip",
        "link",
        "add",
        "out",
        "type",
        "veth",
        "peer",
        "name",
        "out",
        "netns",
        &outside.path(),
    ]);
    for (side, net) in [(&node.host, "192.0.2.2/24"), (&outside, "192.0.2.1/24")] {
        side.output(&["ip", "address", "add", net, "dev", "out"]);
        side.output(&["ip", "link", "set", "out", "up"]);
    }
    outside.output(&["ip", "route", "add", "10.88.0.0/16", "via", "192.0.2.2"]);
    let firewall = json!({ "type": "firewall", "backend": "iptables" });
    let runtime = behind(&node, &[firewall]);
    let pod = Namespace::new();
    runtime.add("c1", &pod).unwrap();
    runtime.check("c1", &pod).unwrap();
    let target = "192.0.2.1".parse().unwrap();
    assert!(reaches(&pod, &outside, target));
    runtime.del("c1", &pod.path()).unwrap();
    assert!(node.reserved().is_empty());
}

#[test]
fn check_names_what_is_not_as_the_kept_result_says() {
    let node = Node::new();
    let runtime = behind(&node, &[]);
    let pod = Namespace::new();
    runtime.add("c1", &pod).unwrap();
    let differs = |pointer: &str, value: Value, wanted: &str| {
        let mut before = Value::Null;
        runtime.remember("c1", |result| {
            before = result.clone();
            *result.pointer_mut(pointer).unwrap() = value;
        });
        let error = runtime.check("c1", &pod).unwrap_err();
        assert_eq!(error["code"], 104);
        assert!(message(&error).contains(wanted), "{error} says {wanted}");
        runtime.remember("c1", |result| *result = before);
    };
    differs(
        "/interfaces/0/mac",
        json!(OTHER_MAC),
        "sw0 has the hardware address",
    );
    differs(
        "/interfaces/1/name",
        json!("veth0"),
        "prevResult has no veth",
    );
    differs(
        "/interfaces/2/mac",
        json!(OTHER_MAC),
        "eth0 has the hardware address",
    );
    differs(
        "/interfaces/2/sandbox",
        json!("/other"),
        "prevResult has no eth0",
    );
    differs(
        "/ips/0/address",
        json!("10.88.0.99/16"),
        "lacks the address 10.88.0.99/16",
    );
    differs(
        "/routes/0/dst",
        json!("10.9.0.0/16"),
        "route to 10.9.0.0/16",
    );
    runtime.check("c1", &pod).unwrap();
    let end = host_end(&node.host, &pod);
    node.host.output(&["ip", "link", "set", &end, "nomaster"]);
    let error = runtime.check("c1", &pod).unwrap_err();
    assert!(message(&error).contains("is no port of sw0"), "{error}");
}

#[test]
fn behind_a_plugin_that_made_the_interface_this_one_refuses_as_the_reference_does() {
    let (ours, theirs) = (Node::new(), Node::new());
    let mut bridge = ours.conf.clone();
    bridge["type"] = json!("bridge");
    let second = |plugin: &Value, node: &Node| {
        let mut first = bridge.clone();
        first["ipam"]["dataDir"] = json!(node.dir.path().join("first"));
        let runtime = Runtime::new(&node.host, &[first, plugin.clone()]);
        runtime.add("c1", &Namespace::new()).unwrap_err()
    };
    let reference = second(&bridge, &theirs);
    assert!(
        message(&reference).contains("already exists"),
        "{reference}"
    );
    let error = second(&ours.conf, &ours);
    assert_eq!(error["code"], 7);
    let wanted = "swiftlet-cni has to be the first";
    assert!(message(&error).contains(wanted), "{error}");
    assert!(ours.reserved().is_empty());
}

#[test]
fn pods_on_isolated_ports_reach_the_node_and_not_each_other() {
    let node = Node::with(|conf| conf["portIsolation"] = json!(true));
    let (one, two) = (Namespace::new(), Namespace::new());
    node.add("c1", &one).unwrap();
    let second = address(&node.add("c2", &two).unwrap());
    let end = host_end(&node.host, &one);
    let port = &node.host.ip(&["link", "show", &end])[0]["linkinfo"]["info_slave_data"];
    assert_eq!(
        (&port["isolated"], &port["hairpin"]),
        (&json!(true), &json!(true))
    );
    assert!(reaches(&one, &node.host, "10.88.0.1".parse().unwrap()));
    let probe = two.run(|| TcpListener::bind((second, 0)).unwrap());
    let target = probe.local_addr().unwrap();
    let outcome = one.run(|| TcpStream::connect_timeout(&target, Duration::from_millis(300)));
    assert!(outcome.is_err());
}

#[test]
fn a_sysctl_that_the_kernel_refuses_undoes_the_pod_and_check_sees_another_value() {
    let with = |value: &'static str| {
        Node::with(move |conf| conf["sysctl"] = json!({ "net.ipv4.ip_default_ttl": value }))
    };
    let (node, pod) = (with("999"), Namespace::new());
    let error = node.add("c1", &pod).unwrap_err();
    assert!(message(&error).contains("ip_default_ttl"), "{error}");
    assert!(node.reserved().is_empty() && node.host.veths().is_empty());
    assert_eq!(pod.links(), ["lo"]);

    let node = with("77");
    let host_before = node
        .host
        .output(&["cat", "/proc/sys/net/ipv4/ip_default_ttl"]);
    node.add("c1", &pod).unwrap();
    assert_eq!(
        pod.output(&["cat", "/proc/sys/net/ipv4/ip_default_ttl"]),
        "77\n"
    );
    let host_after = node
        .host
        .output(&["cat", "/proc/sys/net/ipv4/ip_default_ttl"]);
    assert_eq!(host_before, host_after);
    node.ask("CHECK", "c1", &pod.path()).unwrap();
    pod.output(&["sh", "-c", "echo 64 > /proc/sys/net/ipv4/ip_default_ttl"]);
    let error = node.ask("CHECK", "c1", &pod.path()).unwrap_err();
    let wanted = "net.ipv4.ip_default_ttl is \"64\" instead of \"77\"";
    assert!(message(&error).contains(wanted), "{error}");
}
