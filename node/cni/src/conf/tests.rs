//! Confs that are read, and confs that are refused by the field's name.

use serde_json::{Value, json};

use super::*;
use crate::ipam::LeasedAddress;

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "swiftlet-cni", "bridge": "sw0",
        "isGateway": true, "ipMasq": true, "hairpinMode": true, "mtu": 1400,
        "ipam": { "type": "host-local", "subnet": "10.88.0.0/16",
                  "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": "/run/x" },
    })
}

fn parse(conf: &Value) -> Result<NetworkConf, NetworkError> {
    NetworkConf::parse(conf.to_string().as_bytes())
}

fn with(pointer: &str, key: &str, value: Value) -> Value {
    let mut conf = base();
    conf.pointer_mut(pointer).unwrap()[key] = value;
    conf
}

/// The range sets of each bridge.
fn texts(conf: &NetworkConf) -> Vec<Vec<String>> {
    let of_bridge = |sets: &Vec<RangeSet>| sets.iter().map(ToString::to_string).collect();
    conf.range_sets.iter().map(of_bridge).collect()
}

#[test]
fn the_ordinary_fields_are_read() {
    let conf = parse(&base()).unwrap();
    assert_eq!(conf.bridges, ["sw0"]);
    assert!(conf.is_gateway && conf.masquerade && conf.hairpin);
    assert_eq!(conf.mtu, Some(1400));
    assert_eq!(texts(&conf), [["10.88.0.1-10.88.255.254"]]);
    assert_eq!(
        conf.routes,
        [Hop {
            destination: IpNet::V4(Ipv4Net::default()),
            gateway: None
        }]
    );
}

#[test]
fn what_a_runtime_or_a_plugin_asks_in_vain_is_refused_with_code_7_and_its_name() {
    let port = |protocol: &str, ip: &str| {
        let port =
            json!({ "hostPort": 80, "containerPort": 80, "protocol": protocol, "hostIP": ip });
        json!({ "portMappings": [port] })
    };
    refuses([
        (with("", "vlan", json!(4095)), "vlan"),
        (
            with("", "sysctl", json!({ "kernel.x": "1" })),
            "sysctl.kernel.x",
        ),
        (with("", "promisc", json!(true)), "promisc"),
        (with("", "allmulti", json!(true)), "allmulti"),
        (with("", "mac", json!("02:00:00:00:00:09")), "mac"),
        (
            with("", "disableContainerInterface", json!(true)),
            "disableContainerInterface",
        ),
        (with("", "enabledad", json!(true)), "enabledad"),
        (
            with("", "runtimeConfig", json!({ "aliases": ["a"] })),
            "runtimeConfig.aliases",
        ),
        (
            with("", "runtimeConfig", json!({ "infinibandGUID": "c" })),
            "runtimeConfig.infinibandGUID",
        ),
        (
            with("", "runtimeConfig", json!({ "ipRanges": [[{}]] })),
            "runtimeConfig.ipRanges",
        ),
        (
            with("", "runtimeConfig", json!({ "mac": "01:00:00:00:00:09" })),
            "runtimeConfig.mac",
        ),
        (
            with("", "runtimeConfig", json!({ "ips": ["10.88"] })),
            "runtimeConfig.ips",
        ),
        (
            with("", "args", json!({ "cni": { "mac": "x" } })),
            "args.cni.mac",
        ),
        (
            with("", "args", json!({ "cni": { "sysctl": { "net.x": "1" } } })),
            "args.cni.sysctl",
        ),
        (
            with("", "runtimeConfig", port("icmp", "")),
            "runtimeConfig.portMappings",
        ),
        (
            with("", "runtimeConfig", port("tcp", "localhost")),
            "runtimeConfig.portMappings",
        ),
        (
            with(
                "",
                "runtimeConfig",
                json!({ "bandwidth": { "ingressRate": 1 } }),
            ),
            "bandwidth.ingressBurst",
        ),
        (
            with("", "args", json!({ "cni": { "ips": ["x"] } })),
            "args.cni.ips",
        ),
    ]);
}

#[test]
fn every_field_that_is_not_served_is_refused_with_code_7_and_its_name() {
    let long = json!("a-name-that-is-too-long");
    refuses([
        (with("", "bridge", long), "bridge"),
        (with("", "promiscMode", json!(true)), "promiscMode"),
        (with("", "mtu", json!(20)), "mtu"),
        (with("", "name", json!("../x")), "name"),
        (with("/ipam", "type", json!("dhcp")), "ipam.type"),
        (with("/ipam", "subnet", json!("fd00::1")), "ipam.subnet"),
        (with("/ipam", "rangeStart", json!("fd00::1")), "ipam.ranges"),
        (with("/ipam", "ranges", json!([[]])), "ipam.ranges"),
        (
            with("/ipam", "ranges", json!([[{ "subnet": "10.88.3.0/24" }]])),
            "ipam.ranges",
        ),
        (
            with(
                "/ipam",
                "ranges",
                json!([[{ "subnet": "10.1.0.0/24" }, { "subnet": "fd00::/64" }]]),
            ),
            "ipam.ranges",
        ),
        (
            with(
                "/ipam",
                "routes",
                json!([{ "dst": "::/0", "gw": "10.88.0.1" }]),
            ),
            "ipam.routes",
        ),
        (with("/ipam", "something", json!("x")), "ipam.something"),
    ]);
}

fn refuses<const N: usize>(confs: [(Value, &str); N]) {
    for (conf, field) in confs {
        let error = parse(&conf).unwrap_err();
        assert_eq!(error.code(), 7, "{error}");
        assert!(
            error.to_string().contains(&format!("{field:?}")),
            "{error} names {field}"
        );
    }
}

#[test]
fn fields_of_others_and_those_that_ask_for_nothing_are_accepted() {
    let mut conf = with("", "capabilities", json!({ "portMappings": true }));
    conf["runtimeConfig"] = json!({ "portMappings": [] });
    conf["vlan"] = json!(0);
    conf["macspoofchk"] = json!(false);
    conf["prevResult"] = json!({ "ips": [] });
    assert!(parse(&conf).is_ok());
}

#[test]
fn versions_are_those_of_the_specification() {
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        assert!(parse(&with("", "cniVersion", json!(version))).is_ok());
    }
    for version in ["0.2.0", "2.0.0", ""] {
        let error = parse(&with("", "cniVersion", json!(version))).unwrap_err();
        assert_eq!(error.code(), 1);
    }
}

#[test]
fn several_bridges_divide_the_subnet() {
    let conf = parse(&with("", "bridges", json!(3))).unwrap();
    assert_eq!(conf.bridges, ["sw0", "sw1", "sw2"]);
    assert_eq!(
        texts(&conf),
        [
            ["10.88.0.1-10.88.63.254"],
            ["10.88.64.1-10.88.127.254"],
            ["10.88.128.1-10.88.191.254"]
        ]
    );
    assert_eq!(conf.subnets, ["10.88.0.0/16".parse().unwrap()]);
}

#[test]
fn each_range_set_gives_an_address_and_each_bridge_has_its_part_of_each() {
    let mut conf = with("/ipam", "ranges", json!([[{ "subnet": "fd00:88::/64" }]]));
    let one = parse(&conf).unwrap();
    let wanted = [
        "10.88.0.1-10.88.255.254",
        "fd00:88::1-fd00:88::ffff:ffff:ffff:ffff",
    ];
    assert_eq!(texts(&one), [wanted]);
    let subnets: Vec<_> = one.subnets.iter().map(ToString::to_string).collect();
    assert_eq!(subnets, ["10.88.0.0/16", "fd00:88::/64"]);
    conf["bridges"] = json!(2);
    assert_eq!(
        texts(&parse(&conf).unwrap()),
        [
            [
                "10.88.0.1-10.88.127.254",
                "fd00:88::1-fd00:88::7fff:ffff:ffff:ffff"
            ],
            [
                "10.88.128.1-10.88.255.254",
                "fd00:88::8000:0:0:1-fd00:88::ffff:ffff:ffff:ffff"
            ]
        ]
    );
    conf["ipam"]["ranges"][0][0]["rangeStart"] = json!("fd00:88::9");
    assert!(
        parse(&conf)
            .unwrap_err()
            .to_string()
            .contains("\"bridges\"")
    );
}

#[test]
fn a_default_gateway_adds_one_default_route_per_family() {
    let leased = |address: &str, gateway: &str| LeasedAddress {
        address: address.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
    };
    let lease = Lease {
        addresses: vec![
            leased("10.88.0.2/16", "10.88.0.1"),
            leased("fd00::2/64", "fd00::1"),
            leased("fd01::2/64", "fd01::1"),
        ],
        shard: 0,
    };
    let hop = |destination: &str, gateway: Option<&str>| Hop {
        destination: destination.parse().unwrap(),
        gateway: gateway.map(|text| text.parse().unwrap()),
    };
    let six = hop("::/0", Some("fd00::1"));
    let mut conf = with("", "isDefaultGateway", json!(true));
    let routes = |conf: &Value| parse(conf).unwrap().pod_routes(&lease);
    assert_eq!(routes(&conf), [hop("0.0.0.0/0", None), six]);
    conf["ipam"]["routes"] = json!([]);
    assert_eq!(routes(&conf), [hop("0.0.0.0/0", Some("10.88.0.1")), six]);
    let towards = |text: &str| lease.gateway_towards(&text.parse().unwrap()).unwrap();
    assert_eq!(towards("fd09::/64").to_string(), "fd00::1");
    assert_eq!(towards("10.9.0.0/24").to_string(), "10.88.0.1");
}

#[test]
fn what_one_pod_asks_for_is_collected_and_the_runtime_decides() {
    let mut conf = with(
        "",
        "args",
        json!({ "cni": {
        "ips": ["10.88.0.9"], "mac": "02:00:00:00:00:07", "labels": [{ "key": "a" }],
    } }),
    );
    conf["dns"] = json!({ "nameservers": ["192.0.2.1"], "domain": "example" });
    conf["runtimeConfig"] = json!({
        "ips": ["10.88.0.10/16"], "mac": "02:00:00:00:00:08",
        "dns": { "servers": ["192.0.2.2"] },
    });
    let mut conf = parse(&conf).unwrap();
    let args = "IP=10.88.0.11;MAC=02:00:00:00:00:09";
    conf.extras.add(&crate::args::CniArgs::parse(args).unwrap());
    let ips: Vec<_> = conf.extras.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.88.0.9", "10.88.0.10", "10.88.0.11"]);
    assert_eq!(conf.extras.mac.unwrap().to_string(), "02:00:00:00:00:08");
    let wanted = json!({ "nameservers": ["192.0.2.2"], "domain": "example" });
    assert_eq!(serde_json::to_value(&conf.dns).unwrap(), wanted);
}

#[test]
fn del_reads_nothing_that_could_keep_a_pods_parts_here() {
    let mut conf = with("/ipam", "resolvConf", json!("/nowhere/resolv.conf"));
    conf["runtimeConfig"] = json!({ "mac": "x" });
    conf["prevResult"] = json!({ "ips": "x" });
    conf["args"] = json!({ "cni": { "ips": ["x"] } });
    let text = conf.to_string();
    assert!(NetworkConf::parse(text.as_bytes()).is_err());
    assert!(NetworkConf::parse_to_remove(text.as_bytes()).is_ok());
}
