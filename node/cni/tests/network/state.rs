//! What a plugin leaves in the kernel, as lines that can be compared, and where two may differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::node::Namespace;

/// A line's name, and its value.
pub(crate) type State = BTreeMap<String, String>;

/// Where this program leaves something else than the reference, and why.
pub(crate) const ALLOWED: [(&str, &str); 7] = [
    (
        "host sw0 ifalias",
        "the mark of a bridge that teardown may remove",
    ),
    (
        "host veth txqlen",
        "the kernel's default; 0 would be the limit of every queue that is put there",
    ),
    (
        "pod eth0 txqlen",
        "the kernel's default; 0 would be the limit of every queue that is put there",
    ),
    (
        "host sysctl net/ipv6/conf/veth/accept_ra",
        "a port of a bridge hands all packets to the bridge, whose accept_ra is 0",
    ),
    (
        "pod sysctl net/ipv6/conf/eth0/accept_ra",
        "a pod's addresses and routes of IPv6 are the node's to give, not another pod's",
    ),
    (
        "pod sysctl net/ipv4/conf/eth0/arp_notify",
        "an address has the same hardware address with every pod: there is nothing to announce",
    ),
    (
        "pod sysctl net/ipv6/conf/eth0/accept_dad",
        "addresses are added with the flag nodad: the pod's own addresses keep their check",
    ),
];

/// Values that differ by chance or by the clock.
const BY_CHANCE: [&str; 12] = [
    "ifindex",
    "link_index",
    "link_netnsid",
    "address",
    "addr_info",
    "linkinfo",
    "ifname",
    "stats64",
    "inet6_addr_gen_mode",
    "min_mtu",
    "max_mtu",
    "altnames",
];
const BY_CHANCE_OF_A_BRIDGE: [&str; 6] = [
    "bridge_id",
    "root_id",
    "hello_timer",
    "gc_timer",
    "topology_change_timer",
    "tcn_timer",
];
const BY_CHANCE_OF_A_PORT: [&str; 8] = [
    "id",
    "no",
    "bridge_id",
    "root_id",
    "designated_port",
    "message_age_timer",
    "forward_delay_timer",
    "hold_timer",
];

/// All of the host and of the pod.
pub(crate) fn state(host: &Namespace, pod: &Namespace) -> State {
    let mut state = State::new();
    link(&mut state, "host", host, "sw0");
    link(&mut state, "pod", pod, "eth0");
    link(&mut state, "pod", pod, "lo");
    let veth = host_end(host, pod);
    link(&mut state, "host", host, &veth);
    for (name, namespace, interface) in [
        ("host", host, "sw0"),
        ("host", host, &*veth),
        ("pod", pod, "eth0"),
    ] {
        routes(&mut state, name, namespace);
        for family in ["ipv4", "ipv6"] {
            for interface in [interface, "all", "default"] {
                sysctls(
                    &mut state,
                    name,
                    namespace,
                    &format!("net/{family}/conf/{interface}"),
                );
            }
        }
        sysctls(&mut state, name, namespace, "net/core");
    }
    let forward = host.output(&["cat", "/proc/sys/net/ipv4/ip_forward"]);
    state.insert("host forwards".into(), forward);
    state
        .into_iter()
        .map(|(key, value)| (key.replace(&veth, "veth"), value.replace(&veth, "veth")))
        .collect()
}

/// The names of all differences that are not allowed; those that are, are noted.
pub(crate) fn differences(ours: &State, theirs: &State, seen: &mut BTreeSet<&str>) -> Vec<String> {
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let different = names
        .into_iter()
        .filter(|name| ours.get(*name) != theirs.get(*name));
    let mut found = Vec::new();
    for name in different {
        match ALLOWED.iter().find(|(allowed, _)| allowed == name) {
            Some((allowed, _)) => drop(seen.insert(allowed)),
            None => found.push(format!(
                "{name}: ours {:?}, theirs {:?}",
                ours.get(name),
                theirs.get(name)
            )),
        }
    }
    found
}

/// The name of the other end of the pod's interface.
pub(crate) fn host_end(host: &Namespace, pod: &Namespace) -> String {
    let index = &pod.ip(&["link", "show", "eth0"])[0]["link_index"];
    let links = host.ip(&["link", "show"]);
    let end = links.iter().find(|link| link["ifindex"] == *index).unwrap();
    end["ifname"].as_str().unwrap().to_owned()
}

fn link(state: &mut State, side: &str, namespace: &Namespace, name: &str) {
    let link = &namespace.ip(&["addr", "show", "dev", name])[0];
    let mut insert = |prefix: &str, object: &Value, without: &[&str]| {
        for (key, value) in object.as_object().into_iter().flatten() {
            if !without.contains(&key.as_str()) {
                state.insert(format!("{side} {name} {prefix}{key}"), value.to_string());
            }
        }
    };
    // Until its carrier changes once while nobody is in a hurry, a bridge that works says UNKNOWN.
    let hurried = (name == "sw0").then_some("operstate");
    insert("", link, &[&BY_CHANCE[..], hurried.as_slice()].concat());
    insert(
        "bridge ",
        &link["linkinfo"]["info_data"],
        &BY_CHANCE_OF_A_BRIDGE,
    );
    insert(
        "port ",
        &link["linkinfo"]["info_slave_data"],
        &BY_CHANCE_OF_A_PORT,
    );
    for info in link["addr_info"].as_array().unwrap() {
        if info["scope"] == "link" {
            continue;
        }
        let address = format!("{}/{}", info["local"], info["prefixlen"]).replace('"', "");
        insert(&format!("{address} "), info, &["tentative", "nodad"]);
    }
}

fn routes(state: &mut State, side: &str, namespace: &Namespace) {
    for family in ["-4", "-6"] {
        for route in namespace.ip(&[family, "route", "show"]) {
            let dst = route["dst"].as_str().unwrap();
            if dst.starts_with("fe80:") || dst == "multicast" {
                continue;
            }
            let dev = route["dev"].as_str().unwrap_or_default();
            let name = format!("{side} route {family} {dst} {dev}");
            state.insert(name, route.to_string());
        }
    }
}

fn sysctls(state: &mut State, side: &str, namespace: &Namespace, folder: &str) {
    let read = namespace.run(|| {
        let entries = fs::read_dir(Path::new("/proc/sys").join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        // Some can only be written, and secrets only be read once they are set.
        let texts = files.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)));
        texts.collect::<Vec<_>>()
    });
    for (path, text) in read {
        let name = path
            .strip_prefix("/proc/sys")
            .unwrap()
            .display()
            .to_string();
        state.insert(format!("{side} sysctl {name}"), text);
    }
}
