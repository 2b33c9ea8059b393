//! Host ports against the real kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{Namespace, Node, address};

pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The node as others see it.
const NODE: &str = "192.0.2.2";

fn with_ports(node: &Node, ports: Value) -> Value {
    let mut conf = node.conf.clone();
    conf["capabilities"] = json!({"portMappings": true});
    conf["runtimeConfig"] = json!({"portMappings": ports});
    conf
}

pub(super) fn add(node: &Node, id: &str, pod: &Namespace, ports: Value) -> Result<Value, Value> {
    node.ask_with("ADD", id, &pod.path(), &with_ports(node, ports))
}

/// A machine outside, with the node on the other end of its wire.
pub(super) fn outside(node: &Node) -> Namespace {
    let outside = Namespace::new();
    let path = outside.path();
    let wire = [
        "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
    ];
    node.host.output(&[&wire[..], &[&path]].concat());
    let node_address = format!("{NODE}/24");
    for (side, address) in [
        (&node.host, node_address.as_str()),
        (&outside, "192.0.2.1/24"),
    ] {
        side.output(&["ip", "address", "add", address, "dev", "wire"]);
        side.output(&["ip", "link", "set", "wire", "up"]);
    }
    outside
}

/// A server that tells each of `clients` who it is, with the port that it listens on.
pub(super) fn serve(pod: &Namespace, name: &'static str, port: u16, clients: usize) {
    let listener = pod.run(|| TcpListener::bind(("::", port)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(clients) {
            stream.unwrap().write_all(name.as_bytes()).unwrap();
        }
    });
}

/// Who answers at the address, or nobody.
pub(super) fn who(from: &Namespace, at: &str) -> Option<String> {
    from.run(|| {
        let mut stream = TcpStream::connect_timeout(&at.parse().unwrap(), PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut name = String::new();
        stream.read_to_string(&mut name).ok()?;
        Some(name)
    })
}

#[test]
fn a_host_port_leads_to_its_pod_from_everywhere_until_the_pod_goes() {
    let node = Node::with(|conf| conf["ipMasq"] = json!(true));
    let outside = outside(&node);
    let (web, other) = (Namespace::new(), Namespace::new());
    let port = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    add(&node, "web", &web, port).unwrap();
    node.add("other", &other).unwrap();
    serve(&web, "web", 80, 6);
    let at_node = format!("{NODE}:8080");
    for (who_asks, from, at) in [
        ("a machine outside", &outside, at_node.as_str()),
        ("the node by its address", &node.host, at_node.as_str()),
        ("the node by localhost", &node.host, "127.0.0.1:8080"),
        ("another pod", &other, at_node.as_str()),
        ("another pod by the gateway", &other, "10.88.0.1:8080"),
        ("the pod itself", &web, at_node.as_str()),
    ] {
        assert_eq!(who(from, at).as_deref(), Some("web"), "{who_asks}");
    }
    node.del("web", &web.path());
    assert_eq!(who(&outside, &at_node), None);
    assert!(!node.dir.path().join("ipam/hostports/web").exists());
    // And once more, as containerd does.
    node.del("web", "");
}

#[test]
fn a_host_port_of_one_address_is_served_there_alone() {
    let node = Node::new();
    let outside = outside(&node);
    let pod = Namespace::new();
    let port = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": NODE}]);
    add(&node, "web", &pod, port).unwrap();
    serve(&pod, "web", 80, 1);
    assert_eq!(
        who(&outside, &format!("{NODE}:8080")).as_deref(),
        Some("web")
    );
    assert_eq!(who(&node.host, "127.0.0.1:8080"), None);
}

#[test]
fn a_host_port_is_one_containers_and_the_loser_leaves_nothing() {
    let node = Node::new();
    let (first, second) = (Namespace::new(), Namespace::new());
    let port =
        |ip: &str| json!([{"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": ip}]);
    add(&node, "first", &first, port("")).unwrap();
    let refused = add(&node, "second", &second, port(NODE)).unwrap_err();
    assert_eq!(refused["code"], 105);
    assert_eq!(
        refused["msg"],
        "host port 192.0.2.2:53/udp is in use by container first"
    );
    assert_eq!(
        node.reserved(),
        ["10.88.0.2"],
        "the second's address is free again"
    );
    assert_eq!(second.links(), ["lo"]);
    let tcp = json!([{"hostPort": 53, "containerPort": 53, "protocol": "tcp"}]);
    add(&node, "second", &second, tcp).unwrap();
    node.del("first", "");
    add(&node, "third", &Namespace::new(), port("")).unwrap();
}

#[test]
fn udp_goes_to_the_new_pod_at_once() {
    let node = Node::new();
    let outside = outside(&node);
    let port = json!([{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]);
    // One flow all the time: the same source port.
    let client = outside.run(|| UdpSocket::bind("192.0.2.1:40000").unwrap());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = |server: &UdpSocket| {
        client.send_to(b"who", (NODE, 5353)).unwrap();
        let mut buffer = [0; 16];
        server.recv_from(&mut buffer).map(|(length, _)| length).ok()
    };
    for id in ["old", "new"] {
        let pod = Namespace::new();
        add(&node, id, &pod, port.clone()).unwrap();
        let server = pod.run(|| UdpSocket::bind("0.0.0.0:53").unwrap());
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(ask(&server), Some(3), "{id}");
        node.del(id, &pod.path());
    }
}

#[test]
fn host_ports_survive_a_restart_and_a_flush_and_dead_sandboxes_lose_theirs() {
    let mut node = Node::new();
    let outside = outside(&node);
    let pods = [Namespace::new(), Namespace::new(), Namespace::new()];
    let port = |host: u16| json!([{"hostPort": host, "containerPort": 80, "protocol": "tcp"}]);
    let pod = address(&add(&node, "alive", &pods[0], port(8080)).unwrap());
    let dead = add(&node, "dead", &pods[1], port(8081)).unwrap();
    let pair = dead["interfaces"][1]["name"].as_str().unwrap();
    serve(&pods[0], "alive", 80, 3);
    serve(&pods[1], "dead", 80, 2);
    node.handle.take().unwrap().shutdown();
    let (alive, at_dead) = (format!("{NODE}:8080"), format!("{NODE}:8081"));
    assert_eq!(
        who(&outside, &alive).as_deref(),
        Some("alive"),
        "nobody serves CNI"
    );
    node.start();
    assert_eq!(
        who(&outside, &at_dead).as_deref(),
        Some("dead"),
        "not judged yet"
    );
    node.host.output(&["ip", "link", "del", pair]);
    node.handle.as_ref().unwrap().reconcile(&["alive"]).unwrap();
    assert_eq!(who(&outside, &at_dead), None);
    node.host.output(&["nft", "flush", "ruleset"]);
    add(&node, "later", &pods[2], port(8082)).unwrap();
    assert_eq!(
        who(&outside, &alive).as_deref(),
        Some("alive"),
        "after a flush"
    );
    let table = node
        .host
        .output(&["nft", "list", "table", "ip", "swiftlet-hostports"]);
    assert!(
        table.contains(&format!("tcp . 8080 : {pod} . 80")),
        "{table}"
    );
    node.handle.take().unwrap().teardown().unwrap();
    assert!(
        !node
            .host
            .output(&["nft", "list", "ruleset"])
            .contains("swiftlet")
    );
}

#[test]
fn what_the_runtime_never_heard_of_is_freed_at_the_second_sweep() {
    let node = Node::new();
    let port = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let (known, lost) = (Namespace::new(), Namespace::new());
    node.add("known", &known).unwrap();
    add(&node, "lost", &lost, port.clone()).unwrap();
    let sweep = || {
        node.handle
            .as_ref()
            .unwrap()
            .sweeper()
            .sweep(&["known"])
            .unwrap()
    };
    assert_eq!(sweep(), 0, "it may be in the making");
    assert_eq!(node.reserved().len(), 2);
    assert_eq!(sweep(), 1);
    assert_eq!(node.reserved(), ["10.88.0.2"]);
    assert_eq!(sweep(), 0);
    add(&node, "next", &Namespace::new(), port).unwrap();
}

#[test]
fn a_node_with_thousands_of_host_ports_starts_again() {
    let mut node = Node::new();
    let outside = outside(&node);
    let pod = Namespace::new();
    let ports: Vec<_> = (20_000..23_000)
        .map(|port| json!({"hostPort": port, "containerPort": 80, "protocol": "tcp"}))
        .collect();
    add(&node, "many", &pod, json!(ports)).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    serve(&pod, "many", 80, 1);
    assert_eq!(
        who(&outside, &format!("{NODE}:22999")).as_deref(),
        Some("many")
    );
    node.del("many", "");
}

#[test]
fn a_port_named_twice_goes_with_its_pod_and_its_address_leads_to_nobody_else() {
    let node = Node::new();
    let outside = outside(&node);
    let pod = Namespace::new();
    // As containerd writes them.
    let port = |ip: &str, to: u16| {
        json!({
            "HostPort": 8080, "ContainerPort": to, "Protocol": "tcp", "HostIP": ip,
        })
    };
    add(
        &node,
        "twice",
        &pod,
        json!([port("", 80), port("0.0.0.0", 81)]),
    )
    .unwrap();
    serve(&pod, "twice", 80, 1);
    let at_node = format!("{NODE}:8080");
    assert_eq!(who(&outside, &at_node).as_deref(), Some("twice"));
    // What was asked for is of no importance for the end.
    let mut conf = with_ports(&node, json!([{"hostPort": "?"}]));
    conf["args"] = json!({"cni": {"ips": ["10.88.0.9"]}});
    node.ask_with("DEL", "twice", "", &conf).unwrap();
    serve(&pod, "twice again", 80, 1);
    assert_eq!(who(&outside, &at_node), None);
}

#[test]
fn nobody_else_reaches_what_listens_on_the_nodes_own_loopback() {
    let node = Node::new();
    let (outside, pod) = (outside(&node), Namespace::new());
    let port = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    add(&node, "web", &pod, port).unwrap();
    let secret = node
        .host
        .run(|| TcpListener::bind("127.0.0.1:9000").unwrap());
    secret.set_nonblocking(true).unwrap();
    for (from, gateway) in [(&pod, "10.88.0.1"), (&outside, NODE)] {
        // As one with the right to do so in its own namespace would.
        from.output(&["ip", "address", "flush", "dev", "lo"]);
        let link = if gateway == NODE { "wire" } else { "eth0" };
        let path = format!("/proc/sys/net/ipv4/conf/{link}/route_localnet");
        from.run(|| std::fs::write(path, "1").unwrap());
        from.output(&["ip", "route", "add", "127.0.0.1/32", "via", gateway]);
        assert_eq!(who(from, "127.0.0.1:9000"), None);
        assert!(secret.accept().is_err(), "somebody came through");
    }
}
