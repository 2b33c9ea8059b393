//! Host ports and masquerade of IPv6 against the real kernel.

use std::net::{TcpListener, UdpSocket};

use serde_json::{Value, json};

use super::node::{Namespace, Node};
use super::ports::{PATIENCE, add, outside, serve, who};

/// The node, and a machine outside.
const NODE: &str = "2001:db8::2";
const OUTSIDE: &str = "2001:db8::1";

/// A node whose pods have both families, or IPv6 alone.
fn node(subnets: &[&str]) -> (Node, Namespace) {
    let node = Node::with(|conf| {
        conf["ipMasq"] = json!(true);
        let ipam = conf["ipam"].as_object_mut().unwrap();
        ipam.remove("subnet");
        let defaults = [("0.0.0.0/0", "."), ("::/0", ":")].into_iter();
        let defaults = defaults.filter(|(_, sign)| subnets.iter().any(|one| one.contains(sign)));
        let routes: Vec<_> = defaults.map(|(dst, _)| json!({ "dst": dst })).collect();
        let ranges: Vec<_> = subnets.iter().map(|one| json!([{"subnet": one}])).collect();
        ipam.insert("ranges".into(), json!(ranges));
        ipam.insert("routes".into(), json!(routes));
    });
    let outside = outside(&node);
    for (side, address) in [(&node.host, NODE), (&outside, OUTSIDE)] {
        let address = format!("{address}/64");
        side.output(&["ip", "address", "add", &address, "dev", "wire", "nodad"]);
    }
    (node, outside)
}

fn both() -> (Node, Namespace) {
    node(&["10.88.0.0/16", "fd00:88::/64"])
}

fn ports(port: u16, ip: &str) -> Value {
    json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp", "hostIP": ip}])
}

#[test]
fn a_host_port_of_a_pod_of_both_families_is_reached_by_both_until_the_pod_goes() {
    let (node, outside) = both();
    let (web, other) = (Namespace::new(), Namespace::new());
    add(&node, "web", &web, ports(8080, "")).unwrap();
    node.add("other", &other).unwrap();
    serve(&web, "web", 80, 6);
    for (who_asks, from, at) in [
        ("outside by IPv6", &outside, "[2001:db8::2]:8080"),
        ("outside by IPv4", &outside, "192.0.2.2:8080"),
        ("the node by its address", &node.host, "[2001:db8::2]:8080"),
        ("another pod", &other, "[2001:db8::2]:8080"),
        ("another pod by the gateway", &other, "[fd00:88::1]:8080"),
        ("the pod itself", &web, "[2001:db8::2]:8080"),
    ] {
        assert_eq!(who(from, at).as_deref(), Some("web"), "{who_asks}");
    }
    assert_eq!(
        who(&node.host, "[::1]:8080"),
        None,
        "::1 never leaves the node"
    );
    node.del("web", &web.path());
    assert_eq!(who(&outside, "[2001:db8::2]:8080"), None);
    for family in ["ip", "ip6"] {
        let table = ["nft", "list", "table", family, "swiftlet-hostports"];
        let table = node.host.output(&table);
        assert!(!table.contains("8080"), "{table}");
    }
}

#[test]
fn the_nodes_own_server_on_loopback_is_not_shadowed_by_a_host_port() {
    let (node, _outside) = both();
    let web = Namespace::new();
    add(&node, "web", &web, ports(8080, "")).unwrap();
    serve(&node.host, "node", 8080, 1);
    assert_eq!(who(&node.host, "[::1]:8080").as_deref(), Some("node"));
}

#[test]
fn a_host_port_of_one_ipv6_address_is_served_there_alone_and_survives_a_restart() {
    let (mut node, outside) = node(&["fd00:88::/64"]);
    let web = Namespace::new();
    add(&node, "web", &web, ports(8080, NODE)).unwrap();
    serve(&web, "web", 80, 2);
    node.handle.take().unwrap().shutdown();
    node.host.output(&["nft", "flush", "ruleset"]);
    node.start();
    assert_eq!(who(&outside, "[2001:db8::2]:8080").as_deref(), Some("web"));
    assert_eq!(who(&web, "[fd00:88::1]:8080"), None);
    // The reference leaves such a mapping out without a word.
    let error = add(&node, "c2", &Namespace::new(), ports(8081, "192.0.2.2")).unwrap_err();
    assert_eq!(error["code"], 7);
    node.handle.take().unwrap().teardown().unwrap();
    assert!(
        !node
            .host
            .output(&["nft", "list", "ruleset"])
            .contains("swiftlet")
    );
}

#[test]
fn a_port_of_all_addresses_is_taken_in_both_families() {
    let (node, _outside) = both();
    let pods = [(); 3].map(|()| Namespace::new());
    add(&node, "all", &pods[0], ports(8080, "")).unwrap();
    for ip in [NODE, "::", "0.0.0.0", "192.0.2.2"] {
        let refused = add(&node, "second", &pods[1], ports(8080, ip)).unwrap_err();
        assert_eq!(refused["code"], 105, "{ip}");
    }
    add(&node, "four", &pods[1], ports(8081, "0.0.0.0")).unwrap();
    add(&node, "six", &pods[2], ports(8081, "::")).unwrap();
}

#[test]
fn pods_leave_with_the_nodes_address_and_meet_each_other_with_their_own() {
    let (node, outside) = both();
    let pods = [Namespace::new(), Namespace::new()];
    for (pod, id) in pods.iter().zip(["c0", "c1"]) {
        node.add(id, pod).unwrap();
    }
    // Who the other side sees.
    let seen = |server: &Namespace, at: &str| {
        let listener = server.run(|| TcpListener::bind(at).unwrap());
        let target = listener.local_addr().unwrap();
        let client = pods[0].run(|| std::net::TcpStream::connect_timeout(&target, PATIENCE));
        drop(client.unwrap());
        listener.accept().unwrap().1.ip().to_string()
    };
    assert_eq!(seen(&outside, "[2001:db8::1]:7000"), NODE);
    assert_eq!(seen(&pods[1], "[fd00:88::3]:7000"), "fd00:88::2");
}

#[test]
fn udp_of_ipv6_goes_to_the_new_pod_at_once() {
    let (node, outside) = both();
    let port = json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
    let client = outside.run(|| UdpSocket::bind("[2001:db8::1]:40000").unwrap());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for id in ["old", "new"] {
        let pod = Namespace::new();
        add(&node, id, &pod, port.clone()).unwrap();
        let server = pod.run(|| UdpSocket::bind("[::]:53").unwrap());
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        client.send_to(b"who", (NODE, 5353)).unwrap();
        let received = server.recv_from(&mut [0; 16]);
        assert_eq!(received.map(|(length, _)| length).ok(), Some(3), "{id}");
        node.del(id, &pod.path());
    }
}
