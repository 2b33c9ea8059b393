//! The reference plugins are the judge: what a conf gives here is what the same conf gives with
//! them, in the kernel, on disk and in the result. Needs Debian's containernetworking-plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Map, Value, json};

use super::node::{Namespace, Node};
use super::runtime::Runtime;
use super::state::{ALLOWED, differences, state};

/// The hardware address that pods ask for; all others are made up.
const ASKED_MAC: &str = "02:00:00:00:00:09";

/// A conf, and what a runtime says about one pod.
struct Case {
    conf: Box<dyn Fn(&mut Value)>,
    offers: Value,
    args: &'static str,
    /// What the host has before.
    before: &'static [&'static [&'static str]],
}

fn case(conf: impl Fn(&mut Value) + 'static) -> Case {
    Case {
        conf: Box::new(conf),
        offers: json!({}),
        args: "",
        before: &[],
    }
}

/// What one side did with a case.
struct Outcome {
    node: Node,
    pod: Namespace,
    answer: Result<Value, Value>,
}

impl Case {
    /// Runs the list of plugins that `list` makes of the conf.
    fn run(&self, list: impl Fn(&Value) -> Vec<Value>) -> Outcome {
        let node = Node::with(&self.conf);
        for words in self.before {
            node.host.output(words);
        }
        let pod = Namespace::new();
        // A loopback plugin, which containerd runs before both, is not part of the comparison.
        pod.output(&["ip", "link", "set", "lo", "up"]);
        let mut runtime = Runtime::new(&node.host, &list(&node.conf));
        runtime.offers = self.offers.clone();
        self.args.clone_into(&mut runtime.args);
        let answer = runtime.add("c1", &pod);
        // There is no CHECK before 0.4.0, and that of the reference 1.1 knows no route without a
        // gateway.
        let old = node.conf["cniVersion"].as_str().unwrap().starts_with("0.3");
        let is_ours = list(&node.conf)[0]["type"] == "swiftlet-cni";
        if answer.is_ok() && is_ours && !old {
            runtime.check("c1", &pod).unwrap();
        }
        drop(runtime);
        Outcome { node, pod, answer }
    }

    fn run_both(&self) -> [Outcome; 2] {
        [self.run(|conf| vec![conf.clone()]), self.run(references)]
    }

    /// Both must do the same, apart from what is allowed.
    fn compare(&self, seen: &mut BTreeSet<&'static str>) {
        let [ours, theirs] = self.run_both();
        let (result, other) = (ours.answer.unwrap(), theirs.answer.unwrap());
        assert_eq!(comparable(result), comparable(other));
        let found = differences(
            &state(&ours.node.host, &ours.pod),
            &state(&theirs.node.host, &theirs.pod),
            seen,
        );
        assert!(found.is_empty(), "{}\n{}", ours.node.conf, found.join("\n"));
        assert_eq!(files(&ours.node), files(&theirs.node));
    }
}

/// The conf as the list of reference plugins that does the same.
fn references(conf: &Value) -> Vec<Value> {
    let mut bridge = conf.clone();
    bridge["type"] = json!("bridge");
    let mut plugins = Vec::new();
    if let Some(sysctl) = bridge.as_object_mut().unwrap().remove("sysctl") {
        plugins.push(json!({ "type": "tuning", "sysctl": sysctl }));
    }
    plugins.insert(0, bridge);
    plugins
}

/// The result without what differs by chance.
fn comparable(mut result: Value) -> Value {
    for interface in result["interfaces"].as_array_mut().unwrap() {
        if interface["mac"] != ASKED_MAC {
            interface["mac"] = Value::Null;
        }
        if interface["name"].as_str().unwrap().starts_with("veth") {
            interface["name"] = json!("veth");
        }
        if let Some(sandbox) = interface.get_mut("sandbox") {
            *sandbox = json!("the pod's");
        }
    }
    result
}

/// host-local's files.
fn files(node: &Node) -> BTreeMap<String, Vec<u8>> {
    let dir = node.dir.path().join("ipam/pods");
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    // The boot that addresses belong to is ours alone.
    files.filter(|(name, _)| name != "boot_id").collect()
}

fn dual_stack(conf: &mut Value) {
    let ipam = conf["ipam"].as_object_mut().unwrap();
    ipam.remove("subnet");
    ipam["routes"] = json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]);
    let ranges = json!([[{ "subnet": "10.88.0.0/16" }], [{ "subnet": "fd00:88::/64" }]]);
    ipam.insert("ranges".into(), ranges);
}

fn plain_fields() -> Vec<Case> {
    vec![
        case(|_| ()),
        case(|conf| {
            conf["hairpinMode"] = json!(false);
            conf["mtu"] = json!(1300);
            conf["isDefaultGateway"] = json!(true);
            conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24" }]);
        }),
        case(|conf| {
            conf["isGateway"] = json!(false);
            conf["ipam"].as_object_mut().unwrap().remove("subnet");
            conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24", "gw": "10.7.0.9" }]);
            conf["ipam"]["ranges"] = json!([[{
                "subnet": "10.7.0.0/24", "rangeStart": "10.7.0.20", "rangeEnd": "10.7.0.30",
                "gateway": "10.7.0.254",
            }]]);
        }),
        case(|conf| {
            conf["hairpinMode"] = json!(false);
            conf["promiscMode"] = json!(true);
        }),
        case(|conf| conf["dns"] = json!({ "nameservers": ["192.0.2.1"], "search": ["a", "b"] })),
    ]
}

fn addresses_of_both_families() -> Vec<Case> {
    vec![
        case(dual_stack),
        case(|conf| {
            dual_stack(conf);
            conf["isDefaultGateway"] = json!(true);
            conf["ipam"]["routes"] = json!([]);
        }),
        case(|conf| {
            dual_stack(conf);
            conf["ipam"]["ranges"].as_array_mut().unwrap().remove(0);
            conf["ipam"]["routes"] = json!([{ "dst": "::/0" }]);
        }),
        case(|conf| {
            conf["isGateway"] = json!(false);
            conf["ipam"]["ranges"] = json!([[{ "subnet": "10.99.0.0/24" }]]);
        }),
    ]
}

fn what_one_pod_asks_for() -> Vec<Case> {
    let offers = |offers: Value| Case {
        offers,
        ..case(|conf| conf["capabilities"] = json!({ "ips": true, "mac": true }))
    };
    vec![
        offers(json!({ "ips": ["10.88.0.77/16"], "mac": ASKED_MAC })),
        offers(json!({ "ips": ["10.88.0.77"] })),
        case(|conf| conf["args"] = json!({ "cni": { "ips": ["10.88.0.78"], "mac": ASKED_MAC } })),
        Case {
            args: "IgnoreUnknown=1;IP=10.88.0.79;MAC=02:00:00:00:00:09",
            ..case(|_| ())
        },
        Case {
            args: "IgnoreUnknown=true;MAC=02:00:00:00:00:07",
            offers: json!({ "mac": ASKED_MAC }),
            ..case(|conf| {
                conf["capabilities"] = json!({ "mac": true });
                conf["args"] = json!({ "cni": { "mac": "02:00:00:00:00:08" } });
            })
        },
        Case {
            offers: json!({ "ips": ["fd00:88::77"] }),
            ..case(|conf| {
                dual_stack(conf);
                conf["capabilities"] = json!({ "ips": true });
            })
        },
        case(|conf| {
            conf["sysctl"] = json!({
                "net.core.somaxconn": "500", "net.ipv4.ip_local_port_range": "20000 30000",
                "net.ipv4.conf.IFNAME.arp_filter": "1", "net/ipv4/conf/all/forwarding": "1",
            });
        }),
    ]
}

fn bridges_that_exist() -> Vec<Case> {
    vec![
        Case {
            before: &[
                &["ip", "link", "add", "sw0", "type", "bridge"],
                &[
                    "ip",
                    "address",
                    "add",
                    "10.88.0.1/16",
                    "brd",
                    "10.88.255.255",
                    "dev",
                    "sw0",
                ],
            ],
            ..case(|_| ())
        },
        Case {
            before: &[
                &["ip", "link", "add", "sw0", "type", "bridge"],
                &["ip", "address", "add", "10.1.0.1/24", "dev", "sw0"],
                &["ip", "address", "add", "10.88.0.9/16", "dev", "sw0"],
            ],
            ..case(|conf| conf["forceAddress"] = json!(true))
        },
        Case {
            before: &[
                &["ip", "link", "add", "sw0", "type", "bridge"],
                &[
                    "ip",
                    "address",
                    "add",
                    "fd00:88::9/48",
                    "dev",
                    "sw0",
                    "nodad",
                ],
                &[
                    "ip",
                    "address",
                    "add",
                    "fd00:99::9/64",
                    "dev",
                    "sw0",
                    "nodad",
                ],
            ],
            ..case(|conf| {
                dual_stack(conf);
                conf["forceAddress"] = json!(true);
            })
        },
    ]
}

#[test]
fn every_field_gives_what_the_reference_gives_and_each_allowed_difference_is_one() {
    let mut seen = BTreeSet::new();
    let all = [
        plain_fields(),
        addresses_of_both_families(),
        what_one_pod_asks_for(),
        bridges_that_exist(),
    ];
    for case in all.iter().flatten() {
        case.compare(&mut seen);
    }
    let allowed: BTreeSet<_> = ALLOWED.iter().map(|(name, _)| *name).collect();
    assert_eq!(seen, allowed);
}

#[test]
fn every_version_gives_what_the_reference_gives() {
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0"] {
        case(move |conf| conf["cniVersion"] = json!(version)).compare(&mut BTreeSet::new());
        case(move |conf| {
            dual_stack(conf);
            conf["cniVersion"] = json!(version);
        })
        .compare(&mut BTreeSet::new());
    }
}

#[test]
fn what_the_reference_refuses_is_refused_in_its_words_and_leaves_nothing() {
    let asks = |ips: Value| Case {
        offers: json!({ "ips": ips }),
        ..case(|conf| conf["capabilities"] = json!({ "ips": true }))
    };
    let with_args = |args| Case {
        args,
        ..case(|_| ())
    };
    let refused = [
        asks(json!(["10.88.0.1"])),
        asks(json!(["10.99.0.7"])),
        with_args("IgnoreUnknown=1;IP=10.88.0.1"),
        with_args("X=y"),
        with_args("nonsense"),
    ];
    for case in refused {
        let [ours, theirs] = case.run_both();
        let (ours_says, theirs_says) = (ours.answer.unwrap_err(), theirs.answer.unwrap_err());
        let words = theirs_says["msg"]
            .as_str()
            .unwrap()
            .trim_start_matches("ARGS: ");
        let message = ours_says["msg"].as_str().unwrap();
        assert!(
            message.contains(words),
            "ours {message:?}, theirs {words:?}"
        );
        assert!(ours.node.reserved().is_empty() && ours.node.host.veths().is_empty());
    }
}

#[test]
fn an_address_that_another_pod_has_is_refused_and_the_pod_keeps_it() {
    let node = Node::with(|conf| conf["capabilities"] = json!({ "ips": true }));
    let pods = [Namespace::new(), Namespace::new()];
    let mut runtime = Runtime::new(&node.host, std::slice::from_ref(&node.conf));
    runtime.offers = json!({ "ips": ["10.88.0.77"] });
    runtime.add("c1", &pods[0]).unwrap();
    let error = runtime.add("c2", &pods[1]).unwrap_err();
    assert_eq!(error["code"], 106);
    let wanted = "failed to allocate for range 0: requested IP address 10.88.0.77 is not \
                  available in range set 10.88.0.1-10.88.255.254";
    assert_eq!(error["msg"], wanted);
    runtime.check("c1", &pods[0]).unwrap();
    // Whoever asks for an address that was just freed gets it, rest or no rest.
    runtime.del("c1", &pods[0].path()).unwrap();
    runtime.add("c2", &pods[1]).unwrap();
    assert_eq!(node.reserved(), ["10.88.0.77"]);
}

#[test]
fn a_file_gives_the_names_of_servers_where_the_conf_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("resolv.conf");
    fs::write(&path, "nameserver 192.0.2.7\nsearch a b\n").unwrap();
    let mut conf = Map::new();
    conf.insert("nameservers".into(), json!(["192.0.2.7"]));
    conf.insert("search".into(), json!(["a", "b"]));
    let node = Node::with(|conf| conf["ipam"]["resolvConf"] = json!(path));
    // The reference does so from 1.2 on (plugins/main/bridge/bridge.go, dnsConfSet).
    assert_eq!(
        node.add("c1", &Namespace::new()).unwrap()["dns"],
        Value::from(conf)
    );
    let mut conf = node.conf.clone();
    conf["dns"] = json!({ "nameservers": ["192.0.2.8"] });
    let pod = Namespace::new();
    let result = node.ask_with("ADD", "c2", &pod.path(), &conf).unwrap();
    assert_eq!(result["dns"], json!({ "nameservers": ["192.0.2.8"] }));
}
