//! Confs that are read, and confs that are refused by the field's name.

use serde_json::{Value, json};

use super::*;

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

#[test]
fn the_ordinary_fields_are_read() {
    let conf = parse(&base()).unwrap();
    assert_eq!(conf.bridges, ["sw0"]);
    assert!(conf.is_gateway && conf.masquerade && conf.hairpin);
    assert_eq!(conf.mtu, Some(1400));
    assert_eq!(conf.range_sets[0].to_string(), "10.88.0.1-10.88.255.254");
    assert_eq!(
        conf.routes,
        [Hop {
            destination: Ipv4Net::default(),
            gateway: None
        }]
    );
}

#[test]
fn every_field_that_is_not_served_is_refused_with_code_7_and_its_name() {
    let port = |protocol: &str, ip: &str| {
        let port =
            json!({ "hostPort": 80, "containerPort": 80, "protocol": protocol, "hostIP": ip });
        json!({ "portMappings": [port] })
    };
    let refused = [
        (with("", "vlan", json!(5)), "vlan"),
        (with("", "forceAddress", json!(true)), "forceAddress"),
        (
            with("", "runtimeConfig", port("icmp", "")),
            "runtimeConfig.portMappings",
        ),
        (
            with("", "runtimeConfig", port("tcp", "::1")),
            "runtimeConfig.portMappings",
        ),
        (
            with(
                "",
                "runtimeConfig",
                json!({ "bandwidth": { "ingressRate": 1 } }),
            ),
            "runtimeConfig.bandwidth",
        ),
        (
            with("", "args", json!({ "cni": { "ips": ["10.88.0.9"] } })),
            "args.cni.ips",
        ),
        (
            with("", "bridge", json!("a-name-that-is-too-long")),
            "bridge",
        ),
        (with("", "promiscMode", json!(true)), "promiscMode"),
        (with("", "mtu", json!(20)), "mtu"),
        (with("", "name", json!("../x")), "name"),
        (with("/ipam", "type", json!("dhcp")), "ipam.type"),
        (with("/ipam", "subnet", json!("fd00::/64")), "ipam.subnet"),
        (
            with("/ipam", "ranges", json!([[{ "subnet": "10.1.0.0/24" }]])),
            "ipam.ranges",
        ),
        (with("/ipam", "something", json!("x")), "ipam.something"),
    ];
    for (conf, field) in refused {
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
    let sets: Vec<_> = conf.range_sets.iter().map(ToString::to_string).collect();
    assert_eq!(
        sets,
        [
            "10.88.0.1-10.88.63.254",
            "10.88.64.1-10.88.127.254",
            "10.88.128.1-10.88.191.254"
        ]
    );
    assert_eq!(conf.subnets, ["10.88.0.0/16".parse().unwrap()]);
}

#[test]
fn a_default_gateway_adds_one_default_route() {
    let gateway = Ipv4Addr::new(10, 88, 0, 1);
    let mut conf = with("", "isDefaultGateway", json!(true));
    assert_eq!(parse(&conf).unwrap().pod_routes(gateway).len(), 1);
    conf["ipam"]["routes"] = json!([]);
    let routes = parse(&conf).unwrap().pod_routes(gateway);
    assert_eq!(
        routes,
        [Hop {
            destination: Ipv4Net::default(),
            gateway: Some(gateway)
        }]
    );
}
