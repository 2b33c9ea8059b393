//! What dead sandboxes leave, and who takes it away.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::json;
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::start;

use super::detach::wait_for_no_veth;
use super::node::{Namespace, Node, address, reaches};

/// A namespace that is held by a mount alone, as the runtime makes it.
pub(crate) fn mounted(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    File::create(&path).unwrap();
    let namespace = Namespace::new();
    let source = namespace.path();
    let (none, bind) = (None::<&str>, MsFlags::MS_BIND);
    mount(Some(source.as_str()), &path, none, bind, none).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A node that looks for namespaces in a folder of the test.
pub(crate) fn node_with(netns_dir: &Path) -> Node {
    let mut node = Node::new();
    node.handle.take().unwrap().shutdown();
    let options = NetworkOptions {
        netns_dir: netns_dir.to_owned(),
        ..node.options()
    };
    node.handle = Some(start(options).unwrap());
    node
}

pub(crate) fn sweep(node: &Node, live: &[&str]) -> usize {
    let sweeper = node.handle.as_ref().unwrap().sweeper();
    sweeper.sweep(live).unwrap()
}

#[test]
fn a_pair_without_a_sandbox_goes_at_the_second_sweep_and_others_stay() {
    let node = Node::new();
    let (live, dead) = (Namespace::new(), Namespace::new());
    let of_live = node.add("live", &live).unwrap();
    let of_dead = node.add("dead", &dead).unwrap();
    node.del("dead", "");
    for foreign in [
        "veth0a1b2c3d master sw0 type veth peer name other",
        "tap0 master sw0 type veth peer name other0",
    ] {
        let words: Vec<_> = ["ip", "link", "add"]
            .into_iter()
            .chain(foreign.split(' '))
            .collect();
        node.host.output(&words);
    }
    let name = |result: &serde_json::Value| result["interfaces"][1]["name"].clone();
    sweep(&node, &["live"]);
    assert!(
        node.host
            .links()
            .contains(&name(&of_dead).as_str().unwrap().to_owned())
    );
    sweep(&node, &["live"]);
    let links = node.host.links();
    assert!(!links.contains(&name(&of_dead).as_str().unwrap().to_owned()));
    for kept in ["veth0a1b2c3d", "tap0", name(&of_live).as_str().unwrap()] {
        assert!(links.contains(&kept.to_owned()), "{kept}");
    }
    assert!(reaches(&node.host, &live, address(&of_live)));
}

#[test]
fn what_a_lost_runtime_was_making_is_freed_at_one_look_and_nothing_else() {
    let node = Node::new();
    let [live, lost, new] = [(); 3].map(|()| Namespace::new());
    let of_live = node.add("live", &live).unwrap();
    let of_lost = node.add("lost", &lost).unwrap();
    let sweeper = node.handle.as_ref().unwrap().sweeper();
    let held = sweeper.holding();
    // By the runtime that came back, which has not noted it yet.
    let of_new = node.add("new", &new).unwrap();
    assert_eq!(sweeper.free_lost(held, &["live"]).unwrap(), 1);
    let (veth_left, reserved) = (node.host.veths().len(), node.reserved());
    assert_eq!((veth_left, reserved.len()), (2, 2), "{reserved:?}");
    assert!(!reserved.contains(&address(&of_lost).to_string()));
    assert!(reaches(&node.host, &live, address(&of_live)));
    assert!(reaches(&node.host, &new, address(&of_new)));
}

#[test]
fn a_live_sandbox_whose_address_file_is_gone_keeps_its_pair() {
    let node = Node::new();
    let pod = Namespace::new();
    node.add("live", &pod).unwrap();
    node.del("live", "");
    for _ in 0..3 {
        assert_eq!(sweep(&node, &["live"]), 0);
    }
    assert_eq!(node.host.veths().len(), 1);
}

#[test]
fn a_dead_sandboxs_namespace_is_unmounted_and_one_that_is_used_or_unknown_stays() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path());
    let [dead, used, unknown] =
        ["cni-dead", "cni-used", "cni-unknown"].map(|name| mounted(dir.path(), name));
    for (id, path) in [("dead", &dead), ("used", &used)] {
        node.ask("ADD", id, path).unwrap();
        node.del(id, "");
    }
    let (inside, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, or the thread would wait for ever.
        let leave = leave;
        let path = &used;
        scope.spawn(move || {
            let namespace = swiftlet_sys::netns::open(path.as_ref()).unwrap();
            let stay = move || {
                inside.send(()).unwrap();
                left.recv().unwrap();
            };
            swiftlet_sys::netns::run_in(namespace.as_fd(), stay).unwrap();
        });
        entered.recv().unwrap();
        sweep(&node, &[]);
        assert!(Path::new(&dead).exists());
        sweep(&node, &[]);
        let names = [&dead, &used, &unknown].map(|path| Path::new(path).exists());
        assert_eq!(names, [false, true, true]);
        leave.send(()).unwrap();
    });
    // Now that nobody works in there any more.
    sweep(&node, &[]);
    assert!(!Path::new(&used).exists());
    wait_for_no_veth(&node);
    umount2(unknown.as_str(), MntFlags::MNT_DETACH).unwrap();
}

/// Parts of an attached pod that somebody else can take away.
const PARTS: [&str; 6] = [
    "pair",
    "bridge",
    "address file",
    "port file",
    "rules",
    "process",
];

fn take_away(node: &mut Node, part: &str) {
    let gone = |path: &str| fs::remove_file(node.dir.path().join(path)).unwrap();
    match part {
        "pair" => {
            let veths = node.host.veths();
            node.host.output(&["ip", "link", "del", &veths[0]]);
        }
        "bridge" => drop(node.host.output(&["ip", "link", "del", "sw0"])),
        "address file" => gone("ipam/pods/10.88.0.2"),
        "port file" => gone("ipam/hostports/c1"),
        "rules" => drop(node.host.output(&["nft", "flush", "ruleset"])),
        "process" => {
            node.handle.take().unwrap().shutdown();
            node.start();
        }
        other => panic!("no part {other}"),
    }
}

#[test]
fn del_succeeds_and_leaves_nothing_whatever_was_taken_away_before() {
    for parts in 0..1_u32 << PARTS.len() {
        let mut node = Node::with(|conf| conf["ipMasq"] = json!(true));
        let mut conf = node.conf.clone();
        let port = json!({ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" });
        conf["runtimeConfig"] = json!({ "portMappings": [port] });
        let pod = Namespace::new();
        node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
        let taken: Vec<_> = (0..PARTS.len())
            .filter(|part| parts & 1 << part != 0)
            .map(|part| PARTS[part])
            .collect();
        for part in &taken {
            take_away(&mut node, part);
        }
        for netns in [pod.path().as_str(), ""] {
            node.ask_with("DEL", "c1", netns, &conf).unwrap();
        }
        assert!(node.reserved().is_empty(), "without {taken:?}");
        let ports = fs::read_dir(node.dir.path().join("ipam/hostports")).unwrap();
        assert_eq!(ports.count(), 0, "without {taken:?}");
        let rules = node.host.output(&["nft", "list", "ruleset"]);
        assert!(!rules.contains("10.88.0.2"), "without {taken:?}: {rules}");
        let result = node.ask_with("ADD", "c1", &pod.path(), &conf);
        let result = result.unwrap_or_else(|error| panic!("without {taken:?}: {error}"));
        assert!(
            reaches(&node.host, &pod, address(&result)),
            "without {taken:?}"
        );
    }
}
