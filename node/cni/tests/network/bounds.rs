//! What bounds a pod against the real kernel: spoofed frames, bandwidth, VLANs.

use serde_json::{Value, json};

use super::detach::{unplug, wait_for_no_veth};
use super::node::{Namespace, Node, address, reaches};
use super::runtime::Runtime;

const SPOOFED: [&str; 7] = [
    "ip",
    "link",
    "set",
    "eth0",
    "address",
    "02:00:00:00:00:99",
    "up",
];

/// Everything that netfilter and traffic control hold.
fn leftovers(host: &Namespace) -> String {
    let rules = host.output(&["nft", "list", "ruleset"]);
    rules + &host.output(&["tc", "qdisc", "show"])
}

fn ifbs(host: &Namespace) -> Vec<String> {
    let links = host.links().into_iter();
    links.filter(|name| name.starts_with("bwp")).collect()
}

/// The conf with a limit of both directions, as containerd asks for it.
fn limited(node: &Node) -> Value {
    let mut conf = node.conf.clone();
    conf["runtimeConfig"] = json!({"bandwidth": {
        "IngressRate": 8_000_000, "IngressBurst": u32::MAX,
        "EgressRate": 16_000_000, "EgressBurst": 1_000_000,
    }});
    conf
}

/// The token buckets by the name of their link, with their rate in bytes per second.
fn buckets(host: &Namespace) -> Vec<(String, u64)> {
    let text = host.output(&["tc", "-j", "qdisc", "show"]);
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let buckets = all.iter().filter(|one| one["kind"] == "tbf");
    let name = |one: &Value| one["dev"].as_str().unwrap().to_owned();
    let rate = |one: &Value| one["options"]["rate"].as_u64().unwrap();
    let mut found: Vec<_> = buckets.map(|one| (name(one), rate(one))).collect();
    found.sort();
    found
}

#[test]
fn a_frame_from_another_hardware_address_is_dropped_and_only_where_it_is_asked_for() {
    let node = Node::with(|conf| conf["macspoofchk"] = json!(true));
    let [guarded, free, other] = [Namespace::new(), Namespace::new(), Namespace::new()];
    node.add("guarded", &guarded).unwrap();
    let mut conf = node.conf.clone();
    conf["macspoofchk"] = json!(false);
    let without = |id: &str, pod: &Namespace| node.ask_with("ADD", id, &pod.path(), &conf);
    without("free", &free).unwrap();
    let target = address(&without("other", &other).unwrap());
    assert!(reaches(&guarded, &other, target) && reaches(&free, &other, target));
    node.ask("CHECK", "guarded", &guarded.path()).unwrap();
    guarded.output(&SPOOFED);
    free.output(&SPOOFED);
    assert!(reaches(&free, &other, target), "nobody looks at this one");
    assert!(!reaches(&guarded, &other, target));
    node.del("guarded", &guarded.path());
    let left = node.host.output(&["nft", "list", "ruleset"]);
    assert!(
        !left.contains("veth") && left.contains("swiftlet-macspoof"),
        "{left}"
    );
    // The port alone is what CHECK misses.
    node.add("guarded", &guarded).unwrap();
    node.host.output(&[
        "nft",
        "flush",
        "set",
        "bridge",
        "swiftlet-macspoof",
        "allowed",
    ]);
    let error = node.ask("CHECK", "guarded", &guarded.path()).unwrap_err();
    assert!(
        error["msg"].as_str().unwrap().contains("spoofing"),
        "{error}"
    );
}

#[test]
fn guards_survive_a_restart_and_a_flush_and_those_of_the_dead_go() {
    let mut node = Node::with(|conf| conf["macspoofchk"] = json!(true));
    let [alive, dead, later] = [Namespace::new(), Namespace::new(), Namespace::new()];
    node.add("alive", &alive).unwrap();
    let of_dead = node.add("dead", &dead).unwrap();
    let is_guarded = |node: &Node, id: &str| node.ask("CHECK", id, "/nowhere").is_ok();
    assert!(
        !is_guarded(&node, "alive"),
        "a CHECK without a namespace says nothing"
    );
    let count = |node: &Node| {
        let table = [
            "nft",
            "list",
            "set",
            "bridge",
            "swiftlet-macspoof",
            "guarded",
        ];
        node.host.output(&table).matches("veth").count()
    };
    assert_eq!(count(&node), 2);
    node.handle.take().unwrap().shutdown();
    node.host.output(&["nft", "flush", "ruleset"]);
    node.start();
    assert_eq!(count(&node), 2, "the links say it");
    unplug(&node, &of_dead);
    node.handle.as_ref().unwrap().reconcile(&["alive"]).unwrap();
    assert_eq!(count(&node), 1);
    node.ask("CHECK", "alive", &alive.path()).unwrap();
    node.host.output(&["nft", "flush", "ruleset"]);
    node.add("later", &later).unwrap();
    assert_eq!(count(&node), 2, "after a flush");
    node.ask("CHECK", "alive", &alive.path()).unwrap();
    node.handle.take().unwrap().teardown().unwrap();
    assert!(!leftovers(&node.host).contains("swiftlet"));
}

#[test]
fn both_directions_are_limited_and_nothing_stays_after_del() {
    let node = Node::new();
    let pod = Namespace::new();
    let conf = limited(&node);
    let result = node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    let [ifb] = &ifbs(&node.host)[..] else {
        panic!("one device: {:?}", ifbs(&node.host));
    };
    let interfaces = result["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.last().unwrap()["name"], json!(ifb));
    let veth = node.host.veths().remove(0);
    let found = buckets(&node.host);
    assert_eq!(found, [(ifb.clone(), 2_000_000), (veth, 1_000_000)]);
    node.ask_with("CHECK", "c1", &pod.path(), &conf).unwrap();
    assert!(reaches(&node.host, &pod, address(&result)));
    // What the pod sends goes through the device.
    let stats = node.host.output(&["ip", "-j", "-s", "link", "show", ifb]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    let sent = stats[0]["stats64"]["tx"]["packets"].as_u64().unwrap();
    assert!(sent > 0, "{stats}");

    node.host
        .output(&["tc", "qdisc", "del", "dev", ifb, "root"]);
    let error = node
        .ask_with("CHECK", "c1", &pod.path(), &conf)
        .unwrap_err();
    assert!(
        error["msg"].as_str().unwrap().contains("bandwidth"),
        "{error}"
    );
    node.del("c1", &pod.path());
    assert_eq!(ifbs(&node.host), Vec::<String>::new());
    node.del("c1", "");
    drop(pod);
    wait_for_no_veth(&node);
    let left = leftovers(&node.host);
    assert!(!left.contains("tbf") && !left.contains("ingress"), "{left}");
}

#[test]
fn a_limit_that_cannot_be_is_refused_and_leaves_nothing() {
    let node = Node::new();
    let pod = Namespace::new();
    // No frame fits into a bucket of nothing.
    let mut conf = limited(&node);
    conf["runtimeConfig"]["bandwidth"]["EgressBurst"] = json!(0);
    let error = node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap_err();
    assert_eq!(error["code"], 7);
    assert!(
        error["msg"].as_str().unwrap().contains("egressBurst"),
        "{error}"
    );
    assert!(ifbs(&node.host).is_empty() && node.host.veths().is_empty());
    assert!(node.reserved().is_empty());
    // A port that is taken is found after the limits were set: they are undone too.
    let other = Namespace::new();
    let port = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let mut conf = limited(&node);
    conf["macspoofchk"] = json!(true);
    conf["runtimeConfig"]["portMappings"] = port;
    node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    let error = node
        .ask_with("ADD", "c2", &other.path(), &conf)
        .unwrap_err();
    assert_eq!(error["code"], 105);
    assert_eq!((ifbs(&node.host).len(), node.host.veths().len()), (1, 1));
    let guarded = [
        "nft",
        "list",
        "set",
        "bridge",
        "swiftlet-macspoof",
        "guarded",
    ];
    assert_eq!(node.host.output(&guarded).matches("veth").count(), 1);
}

#[test]
fn devices_of_the_dead_go_at_the_start_at_the_sweep_and_at_gc() {
    let mut node = Node::new();
    let pods = [(); 4].map(|()| Namespace::new());
    let conf = limited(&node);
    let mut last = json!(null);
    for (index, pod) in pods.iter().enumerate() {
        let id = format!("c{index}");
        last = node.ask_with("ADD", &id, &pod.path(), &conf).unwrap();
    }
    node.handle.take().unwrap().shutdown();
    unplug(&node, &last);
    node.start();
    assert_eq!(ifbs(&node.host).len(), 4);
    let handle = node.handle.as_ref().unwrap();
    handle.reconcile(&["c0", "c1", "c2"]).unwrap();
    assert_eq!(ifbs(&node.host).len(), 3, "c3 died while nobody served");
    for left in [3, 2] {
        handle.sweeper().sweep(&["c0", "c1"]).unwrap();
        assert_eq!(ifbs(&node.host).len(), left, "gone when seen twice");
    }
    let mut conf = node.conf.clone();
    conf["cniVersion"] = json!("1.1.0");
    conf["cni.dev/valid-attachments"] = json!([{ "containerID": "c0", "ifname": "eth0" }]);
    node.ask_with("GC", "", "", &conf).unwrap();
    assert_eq!(ifbs(&node.host).len(), 1);
    node.del("c0", "");
    assert!(ifbs(&node.host).is_empty());
}

#[test]
fn limits_are_the_references_and_either_program_takes_down_what_the_other_made() {
    let node = Node::with(|conf| conf["capabilities"] = json!({"bandwidth": true}));
    let theirs = Namespace::new();
    let mut plugin = node.conf.clone();
    plugin["type"] = json!("bridge");
    for field in ["socket", "capabilities"] {
        plugin.as_object_mut().unwrap().remove(field);
    }
    plugin["ipam"]["dataDir"] = json!(node.dir.path().join("theirs"));
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let offers = json!({"bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000,
        "egressRate": 16_000_000, "egressBurst": 1_600_000}});
    let mut own = Runtime::new(&node.host, std::slice::from_ref(&node.conf));
    let mut reference = Runtime::new(&theirs, &[plugin, bandwidth]);
    (own.offers, reference.offers) = (offers.clone(), offers);
    let [pod, other] = [Namespace::new(), Namespace::new()];
    own.add("c1", &pod).unwrap();
    reference.add("c1", &other).unwrap();
    assert_eq!(ifbs(&node.host), ifbs(&theirs), "the same name");
    // The name of a veth is by chance, and the burst is rounded to ticks there.
    let shape = |host: &Namespace| {
        let text = host.output(&["tc", "qdisc", "show"]);
        let words = |line: &str| -> Vec<String> {
            let words = line.split_whitespace().map(str::to_owned);
            words.filter(|word| !word.starts_with("veth")).collect()
        };
        let ours = text.lines().filter(|line| !line.contains("noqueue"));
        let mut lines: Vec<_> = ours.map(words).collect();
        lines.sort();
        lines
    };
    assert_eq!(shape(&node.host), shape(&theirs));
    let filters = |host: &Namespace| {
        let veth = host.veths().remove(0);
        let text = host.output(&["tc", "filter", "show", "dev", &veth, "ingress"]);
        // The reference names the action twice, of which the second is never come to.
        text.matches("Egress Redirect to device bwp").count()
    };
    assert_eq!((filters(&node.host), filters(&theirs)), (1, 2));
    // What the reference made in this host goes with our DEL.
    let ifb = ifbs(&theirs).remove(0);
    node.host.output(&["ip", "link", "del", &ifb]);
    node.host
        .output(&["ip", "link", "add", "name", &ifb, "type", "ifb"]);
    own.del("c1", &pod.path()).unwrap();
    assert!(ifbs(&node.host).is_empty());
}

/// Whether bridges of this kernel know VLANs.
fn has_vlans() -> bool {
    let probe = Namespace::new();
    let add = "ip link add name probe type bridge vlan_filtering 1";
    let run = || {
        let mut command = std::process::Command::new("ip");
        command.args(add.split(' ').skip(1)).output().unwrap()
    };
    probe.run(run).status.success()
}

#[test]
fn pods_of_different_vlans_do_not_reach_each_other_or_the_kernel_is_named_as_the_reason() {
    let node = Node::with(|conf| conf["isGateway"] = json!(false));
    let pods = [(); 3].map(|()| Namespace::new());
    let add = |id: &str, pod: &Namespace, vlan: u16| {
        let mut conf = node.conf.clone();
        conf["vlan"] = json!(vlan);
        conf["ipam"].as_object_mut().unwrap().remove("routes");
        node.ask_with("ADD", id, &pod.path(), &conf)
    };
    let first = add("c0", &pods[0], 100);
    if !has_vlans() {
        let error = first.unwrap_err();
        assert!(
            error["msg"]
                .as_str()
                .unwrap()
                .contains("BRIDGE_VLAN_FILTERING"),
            "{error}"
        );
        assert!(node.host.veths().is_empty() && node.reserved().is_empty());
        return;
    }
    let (same, other) = (add("c1", &pods[1], 100), add("c2", &pods[2], 200));
    let target = address(&first.unwrap());
    assert!(reaches(&pods[1], &pods[0], target), "{same:?}");
    assert!(!reaches(&pods[2], &pods[0], target), "{other:?}");
}

#[test]
fn the_gateway_of_a_vlan_is_in_it_or_the_kernel_is_named_as_the_reason() {
    let mut node = Node::with(|conf| {
        conf["vlan"] = json!(100);
        conf["preserveDefaultVlan"] = json!(false);
    });
    let [pod, tagged] = [Namespace::new(), Namespace::new()];
    let result = node.add("c0", &pod);
    if !has_vlans() {
        let error = result.unwrap_err();
        assert!(
            error["msg"]
                .as_str()
                .unwrap()
                .contains("BRIDGE_VLAN_FILTERING"),
            "{error}"
        );
        node.handle.take().unwrap().teardown().unwrap();
        assert_eq!(node.host.links(), ["lo"]);
        return;
    }
    let result = result.unwrap();
    assert!(reaches(&node.host, &pod, address(&result)));
    let gateway = &node.host.ip(&["address", "show", "sw0.100"])[0];
    assert_eq!(gateway["addr_info"][0]["local"], "10.88.0.1");
    let accept_ra = "/proc/sys/net/ipv6/conf/sw0.100/accept_ra";
    assert_eq!(node.host.output(&["cat", accept_ra]).trim(), "0");
    assert_eq!(result["interfaces"][3]["name"], "sw0.100");
    // A trunk lets tags through.
    let mut conf = node.conf.clone();
    conf["vlanTrunk"] = json!([{"minID": 300, "maxID": 302}, {"id": 400}]);
    node.ask_with("ADD", "c1", &tagged.path(), &conf).unwrap();
    let text = node.host.output(&["bridge", "-j", "vlan", "show"]);
    let ports: Vec<Value> = serde_json::from_str(&text).unwrap();
    let of_veths = ports
        .iter()
        .filter(|one| one["ifname"].as_str().unwrap().starts_with("veth"));
    let mut counts: Vec<_> = of_veths
        .map(|one| one["vlans"].as_array().unwrap().len())
        .collect();
    counts.sort_unstable();
    assert!(matches!(counts[..], [1, 3 | 5]), "{text}");
    node.handle.take().unwrap().teardown().unwrap();
    assert_eq!(node.host.links(), ["lo"]);
}
