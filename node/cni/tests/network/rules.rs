//! Rules that stand for all pods: what keeps them when somebody flushes, restarts, or leaves files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use swiftlet_cni::host_check;

use super::node::{Namespace, Node};
use super::ports::{outside, serve, who};

/// A port of the node.
fn port(host: u16) -> Value {
    json!([{"hostPort": host, "containerPort": 80, "protocol": "tcp"}])
}

fn with_port(conf: &Value, host: u16) -> Value {
    let mut conf = conf.clone();
    conf["runtimeConfig"] = json!({ "portMappings": port(host) });
    conf
}

fn sweep(node: &Node, live: &[&str]) {
    let sweeper = node.handle.as_ref().unwrap().sweeper();
    sweeper.sweep(live).unwrap();
}

fn ruleset(node: &Node) -> String {
    node.host.output(&["nft", "list", "ruleset"])
}

/// The tables, whichever was made first.
fn tables(node: &Node) -> Vec<String> {
    let rules = ruleset(node);
    let tables = rules.split("table ").map(|table| table.trim().to_owned());
    let mut tables: Vec<_> = tables.collect();
    tables.sort();
    tables
}

fn restart(node: &mut Node) {
    node.handle.take().unwrap().shutdown();
    node.start();
}

fn port_file(node: &Node, id: &str) -> PathBuf {
    node.dir.path().join("ipam/hostports").join(id)
}

#[test]
fn rules_that_somebody_changed_are_there_again_after_a_sweep() {
    let node = Node::with(|conf| {
        conf["ipMasq"] = json!(true);
        conf["macspoofchk"] = json!(true);
    });
    let pod = Namespace::new();
    let conf = with_port(&node.conf, 8080);
    node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    let whole = tables(&node);
    for change in [
        "flush ruleset",
        "flush table ip swiftlet",
        "delete table ip swiftlet",
        "flush table ip swiftlet-hostports",
        "flush map ip swiftlet-hostports any",
        "flush chain ip swiftlet-hostports guard",
        "flush table bridge swiftlet-macspoof",
        "flush set bridge swiftlet-macspoof allowed",
        "delete table bridge swiftlet-macspoof",
    ] {
        let words: Vec<_> = ["nft"].into_iter().chain(change.split(' ')).collect();
        node.host.output(&words);
        assert_ne!(tables(&node), whole, "{change}");
        sweep(&node, &["c1"]);
        assert_eq!(tables(&node), whole, "{change}");
    }
}

#[test]
fn a_sweep_leaves_rules_alone_that_are_as_they_should_be() {
    let node = Node::with(|conf| {
        conf["ipMasq"] = json!(true);
        conf["macspoofchk"] = json!(true);
    });
    for (id, host) in [("c1", 8080), ("c2", 8081)] {
        let conf = with_port(&node.conf, host);
        let pod = Namespace::new();
        node.ask_with("ADD", id, &pod.path(), &conf).unwrap();
        // The handles of a table that is written anew are others.
        let handles = || node.host.output(&["nft", "-a", "list", "tables"]);
        let before = handles();
        assert_eq!(before.lines().count(), 3, "{before}");
        sweep(&node, &["c1", "c2"]);
        assert_eq!(handles(), before);
    }
}

#[test]
fn networks_of_before_a_restart_stay_masqueraded_and_their_old_subnets_do_not() {
    let mut node = Node::with(|conf| {
        conf["ipMasq"] = json!(true);
        conf["ipam"]["ranges"] = json!([[{"subnet": "fd00:88::/64"}]]);
    });
    let mut other = node.conf.clone();
    other["name"] = json!("others");
    other["bridge"] = json!("sw1");
    other["ipam"]["ranges"] = json!([]);
    other["ipam"]["subnet"] = json!("10.99.0.0/16");
    let pods = [(); 3].map(|()| Namespace::new());
    node.add("c1", &pods[0]).unwrap();
    node.ask_with("ADD", "c2", &pods[1].path(), &other).unwrap();
    assert!(ruleset(&node).contains("table ip6 swiftlet"));
    node.handle.take().unwrap().shutdown();
    node.conf["ipam"]["ranges"] = json!([]);
    node.start();
    node.add("c3", &pods[2]).unwrap();
    let rules = ruleset(&node);
    assert!(rules.contains("ip saddr 10.99.0.0/16"), "{rules}");
    assert!(rules.contains("ip saddr 10.88.0.0/16"), "{rules}");
    assert!(!rules.contains("table ip6"), "{rules}");
    // And one that does not want it any more.
    other["ipMasq"] = json!(false);
    let pod = Namespace::new();
    node.ask_with("ADD", "c4", &pod.path(), &other).unwrap();
    assert!(!ruleset(&node).contains("10.99.0.0/16"));
}

#[test]
fn of_two_files_with_one_port_the_newer_is_right_and_the_node_starts() {
    let mut node = Node::new();
    let outside = outside(&node);
    let pod = Namespace::new();
    let conf = with_port(&node.conf, 8080);
    node.ask_with("ADD", "web", &pod.path(), &conf).unwrap();
    serve(&pod, "web", 80, 1);
    node.handle.take().unwrap().shutdown();
    // Of a pod whose end was not written down, at an address that is nobody's now.
    for stale in ["a-stale", "x-stale"] {
        let text = r#"{"addresses":["10.88.0.99"],"mappings":
            [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}"#;
        let path = port_file(&node, stale);
        fs::write(&path, text).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let before = SystemTime::now() - Duration::from_mins(1);
        file.set_modified(before).unwrap();
    }
    node.host.output(&["nft", "flush", "ruleset"]);
    node.start();
    assert_eq!(who(&outside, "192.0.2.2:8080").as_deref(), Some("web"));
    assert!(!port_file(&node, "a-stale").exists() && !port_file(&node, "x-stale").exists());
}

#[test]
fn a_file_of_host_ports_that_could_not_be_removed_goes_with_the_next_del() {
    let mut node = Node::new();
    let pod = Namespace::new();
    let conf = with_port(&node.conf, 8080);
    node.ask_with("ADD", "web", &pod.path(), &conf).unwrap();
    let (path, aside) = (port_file(&node, "web"), node.dir.path().join("aside"));
    let swap = |from: &Path, to: &Path| fs::rename(from, to).unwrap();
    // A folder cannot be removed like a file.
    swap(&path, &aside);
    fs::create_dir(&path).unwrap();
    node.ask("DEL", "web", "").unwrap_err();
    fs::remove_dir(&path).unwrap();
    swap(&aside, &path);
    node.del("web", "");
    assert!(!path.exists());
    // One that no process has read goes too.
    restart(&mut node);
    fs::write(&path, "{}").unwrap();
    node.del("web", "");
    assert!(!path.exists());
}

#[test]
fn ports_of_networks_with_folders_of_their_own_go_from_their_own_folder() {
    let node = Node::new();
    let mut other = node.conf.clone();
    other["name"] = json!("others");
    other["bridge"] = json!("sw1");
    other["ipam"]["subnet"] = json!("10.99.0.0/16");
    other["ipam"]["dataDir"] = json!(node.dir.path().join("other"));
    let pods = [Namespace::new(), Namespace::new()];
    let first = with_port(&node.conf, 8080);
    node.ask_with("ADD", "c1", &pods[0].path(), &first).unwrap();
    let second = with_port(&other, 8081);
    node.ask_with("ADD", "c2", &pods[1].path(), &second)
        .unwrap();
    let of_second = node.dir.path().join("other/hostports/c2");
    assert!(port_file(&node, "c1").exists() && of_second.exists());
    // The folder of the last request is not that of the first pod.
    sweep(&node, &["c2"]);
    sweep(&node, &["c2"]);
    drop(pods);
    sweep(&node, &["c2"]);
    sweep(&node, &["c2"]);
    assert!(!port_file(&node, "c1").exists());
    assert!(of_second.exists());
}

#[test]
fn thousands_of_host_ports_go_after_a_flush_too() {
    let node = Node::new();
    let pod = Namespace::new();
    let ports: Vec<_> = (20_000..23_000).map(|host| port(host)[0].clone()).collect();
    let mut conf = node.conf.clone();
    conf["runtimeConfig"] = json!({ "portMappings": ports });
    node.ask_with("ADD", "many", &pod.path(), &conf).unwrap();
    // Each of them is refused then, more than the kernel keeps for us to read.
    node.host.output(&["nft", "flush", "ruleset"]);
    node.del("many", "");
    assert!(!ruleset(&node).contains("20000"));
}

#[test]
fn a_pod_without_ipv6_believes_no_router_either() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    let text = pod.output(&["cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra"]);
    assert_eq!(text.trim(), "0");
}

#[test]
fn a_default_route_that_forwarding_would_cost_is_named_and_one_that_stays_is_not() {
    let node = Node::new();
    let _outside = outside(&node);
    let found = || node.host.run(|| host_check::routes_to_lose().unwrap());
    let add = [
        "ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "wire",
    ];
    node.host.output(&[&add[..], &["metric", "9"]].concat());
    assert!(found().is_empty(), "nobody advertised it");
    node.host.output(&[&add[..], &["proto", "ra"]].concat());
    assert_eq!(found(), ["wire"]);
    let keep = || fs::write("/proc/sys/net/ipv6/conf/wire/accept_ra", "2").unwrap();
    node.host.run(keep);
    assert!(found().is_empty(), "accept_ra=2 keeps it");
    node.host.run(|| host_check::nftables().unwrap());
}
