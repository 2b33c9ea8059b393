//! The reference plugins are the judge: same conf, same interfaces, addresses, routes and result.
//! Needs Debian's containernetworking-plugins.

use serde_json::{Value, json};

use super::node::{Namespace, Node, exec_plugin};

const REFERENCE: &str = "/usr/lib/cni/bridge";

fn reference(node: &Node, host: &Namespace, command: &str, id: &str, netns: &str) -> String {
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", id),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/usr/lib/cni"),
    ];
    let mut conf = node.conf.clone();
    conf["type"] = json!("bridge");
    let (ok, stdout) = exec_plugin(host, REFERENCE, &variables, &conf);
    assert!(ok, "{stdout}");
    stdout
}

/// The members of an object that do not differ by chance.
fn only(object: &Value, keys: &[&str]) -> Value {
    keys.iter()
        .map(|key| ((*key).to_owned(), object[*key].clone()))
        .collect()
}

fn state(host: &Namespace, pod: &Namespace) -> Value {
    let link = |namespace: &Namespace, name: &str| {
        let link = &namespace.ip(&["addr", "show", name])[0];
        let keys = [
            "ifname",
            "flags",
            "mtu",
            "operstate",
            "link_type",
            "promiscuity",
        ];
        let address_keys = [
            "family",
            "local",
            "prefixlen",
            "broadcast",
            "scope",
            "label",
        ];
        let addresses = link["addr_info"].as_array().unwrap();
        let addresses = addresses.iter().filter(|info| info["family"] == "inet");
        let addresses: Vec<_> = addresses.map(|info| only(info, &address_keys)).collect();
        json!([only(link, &keys), addresses])
    };
    let routes = |namespace: &Namespace| -> Vec<Value> {
        let keys = ["dst", "gateway", "dev", "protocol", "scope", "prefsrc"];
        namespace
            .ip(&["-4", "route", "show"])
            .iter()
            .map(|route| only(route, &keys))
            .collect()
    };
    let port = &host.ip(&["link", "show", &host.veths()[0]])[0];
    let slave = &port["linkinfo"]["info_slave_data"];
    json!({
        "bridge": link(host, "sw0"),
        "pod": link(pod, "eth0"),
        "lo": link(pod, "lo"),
        "host routes": routes(host),
        "pod routes": routes(pod),
        "port": [port["mtu"], port["flags"], port["master"]],
        "port options": only(slave, &["state", "hairpin", "guard", "learning", "flood"]),
        "forwarding": host.output(&["cat", "/proc/sys/net/ipv4/ip_forward"]),
    })
}

/// The result without what differs by chance.
fn comparable(mut result: Value) -> Value {
    for interface in result["interfaces"].as_array_mut().unwrap() {
        interface["mac"] = Value::Null;
        if interface["name"].as_str().unwrap().starts_with("veth") {
            interface["name"] = json!("veth");
        }
        if let Some(sandbox) = interface.get_mut("sandbox") {
            *sandbox = json!("the pod's");
        }
    }
    result
}

fn compare(change: impl Fn(&mut Value)) {
    let ours = Node::with(&change);
    let pod = Namespace::new();
    let result = ours.add("c1", &pod).unwrap();

    let theirs = Node::with(&change);
    let (other_host, other_pod) = (&theirs.host, Namespace::new());
    // The shim's loopback is not part of the comparison; containerd runs one before both.
    other_pod.output(&["ip", "link", "set", "lo", "up"]);
    let stdout = reference(&theirs, other_host, "ADD", "c1", &other_pod.path());
    let other: Value = serde_json::from_str(&stdout).unwrap();

    assert_eq!(comparable(result), comparable(other));
    assert_eq!(state(&ours.host, &pod), state(other_host, &other_pod));
    let files = |node: &Node| {
        let mut files: Vec<_> = node
            .reserved()
            .into_iter()
            .chain(["last_reserved_ip.0".to_owned(), "lock".to_owned()])
            .map(|name| {
                let path = node.dir.path().join("ipam/pods").join(&name);
                (name, std::fs::read(path).unwrap())
            })
            .collect();
        files.sort();
        files
    };
    assert_eq!(files(&ours), files(&theirs));
}

#[test]
fn a_plain_conf_gives_what_the_reference_gives() {
    compare(|_| ());
}

#[test]
fn versions_and_options_give_what_the_reference_gives() {
    compare(|conf| {
        conf["cniVersion"] = json!("0.3.1");
        conf["hairpinMode"] = json!(false);
        conf["mtu"] = json!(1300);
        conf["isDefaultGateway"] = json!(true);
        conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24" }]);
    });
    compare(|conf| {
        conf["cniVersion"] = json!("0.4.0");
        conf["isGateway"] = json!(false);
        conf["ipam"].as_object_mut().unwrap().remove("subnet");
        conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24", "gw": "10.7.0.9" }]);
        conf["ipam"]["ranges"] = json!([[{
            "subnet": "10.7.0.0/24", "rangeStart": "10.7.0.20", "rangeEnd": "10.7.0.30",
            "gateway": "10.7.0.254",
        }]]);
    });
    compare(|conf| {
        conf["hairpinMode"] = json!(false);
        conf["promiscMode"] = json!(true);
    });
}

#[test]
fn a_node_moves_from_the_reference_and_back_with_pods_running() {
    let mut node = Node::new();
    node.handle.take().unwrap().shutdown();
    let (old, new) = (Namespace::new(), Namespace::new());
    reference(&node, &node.host, "ADD", "old", &old.path());
    node.start();
    let result = node.add("new", &new).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.88.0.3/16");
    node.ask("CHECK", "old", &old.path()).unwrap();
    node.del("old", &old.path());
    assert_eq!(node.reserved(), ["10.88.0.3"]);
    // While we run: the file that the reference creates is respected.
    let third = Namespace::new();
    reference(&node, &node.host, "ADD", "third", &third.path());
    let fourth = Namespace::new();
    node.add("fourth", &fourth).unwrap();
    assert_eq!(node.reserved(), ["10.88.0.3", "10.88.0.4", "10.88.0.5"]);
    // And back.
    reference(&node, &node.host, "DEL", "new", &new.path());
    assert_eq!(node.reserved(), ["10.88.0.4", "10.88.0.5"]);
}
