//! Addresses and node ports of Services (Kubernetes: `pkg/registry/core/service`).
//!
//! What is taken is read from the store's snapshot. Writers of Services that need something hold a
//! lock from there to the store's answer, so nothing is given out twice.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, resources};

use crate::api::ApiServer;
use crate::encode;
use crate::error;
use crate::registry::FieldError;
use crate::route::Target;
use crate::strategy::{list_at, text_at};

/// Ports of nodes that are given out (`--service-node-port-range`).
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
/// The least and the most addresses at the begin of the range that are left to those who ask for
/// one by name (Kubernetes: `calculateRangeOffset`).
const RESERVED: (u32, u32) = (16, 256);
/// The shortest and the longest prefix of the range.
const PREFIXES: std::ops::RangeInclusive<u32> = 12..=30;

/// The range of Services' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    base: u32,
    prefix: u32,
}

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a range of IPv4 addresses with a prefix of 12 to 30 bits: {0:?}")]
pub struct RangeError(String);

impl Default for ServiceRange {
    /// 10.96.0.0/16.
    fn default() -> Self {
        Self {
            base: u32::from(Ipv4Addr::new(10, 96, 0, 0)),
            prefix: 16,
        }
    }
}

impl FromStr for ServiceRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix): (Ipv4Addr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
            let range = Self {
                base: u32::from(address),
                prefix,
            };
            let aligned = PREFIXES.contains(&prefix) && range.base.is_multiple_of(range.size());
            aligned.then_some(range)
        };
        parse().ok_or_else(|| RangeError(text.into()))
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

impl ServiceRange {
    /// All addresses, the first and the last included, which are not given out.
    fn size(self) -> u32 {
        1 << (32 - self.prefix)
    }

    /// The address of the API server's own Service.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.base + 1)
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        address > self.base && address < self.base + self.size() - 1
    }

    /// A free address for an object of this name: the same one each time, as long as it is free.
    fn free(self, key: &str, taken: &HashSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let usable = self.size() - 2;
        let reserved = (self.size() / 16).clamp(RESERVED.0, RESERVED.1);
        let reserved = if reserved < usable { reserved } else { 0 };
        let start = spread(key) % (usable - reserved);
        // First what nobody asks for by name, then the rest.
        let upper = (0..usable - reserved).map(|at| reserved + (start + at) % (usable - reserved));
        upper
            .chain(0..reserved)
            .map(|offset| Ipv4Addr::from(self.base + 1 + offset))
            .find(|address| !taken.contains(address))
    }
}

/// A number that is spread evenly and is the same each time (FNV-1a).
fn spread(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// What other Services have.
#[derive(Default)]
struct Taken {
    addresses: HashSet<Ipv4Addr>,
    ports: HashSet<(String, i64)>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Holder {
    spec: HolderSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HolderSpec {
    #[serde(rename = "clusterIP")]
    address: Option<String>,
    ports: Vec<HolderPort>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HolderPort {
    protocol: String,
    node_port: i64,
}

fn taken(api: &ApiServer, target: &Target) -> Taken {
    let own = encode::path(target.resource, &target.namespace, &target.name);
    let snapshot = api.snapshot();
    let mut taken = Taken::default();
    for entry in snapshot.range(&encode::prefix(target.resource, "")) {
        if entry.key.as_ref() == own.as_str() {
            continue;
        }
        let holder: Holder = serde_json::from_slice(&entry.value).unwrap_or_default();
        let address = holder.spec.address.unwrap_or_default();
        taken.addresses.extend(address.parse::<Ipv4Addr>());
        for port in holder.spec.ports {
            if port.node_port != 0 {
                taken.ports.insert((port.protocol, port.node_port));
            }
        }
    }
    taken
}

/// Whether a target's writes need [`allocate`].
pub(crate) fn is_concerned(target: &Target) -> bool {
    target.resource.name == resources::SERVICES && target.subresource.is_empty()
}

/// Completes an update from the stored state; answers whether it keeps the address and the ports as
/// they are, so that [`allocate`] has nothing to give out.
pub(crate) fn is_settled(service: &mut Value, old: &Value) -> bool {
    carry_over(service, old);
    let keeps = |field: &str| service["spec"][field] == old["spec"][field];
    let settled = [
        "type",
        "clusterIP",
        "ports",
        "allocateLoadBalancerNodePorts",
    ]
    .into_iter()
    .all(keeps);
    let kind = text_at(service, "/spec/type");
    let address = text_at(service, "/spec/clusterIP").to_owned();
    if !settled || (kind != "ExternalName" && address.is_empty()) {
        return false;
    }
    if kind == "ExternalName" {
        forget_address(service);
    } else {
        set_address(service, &address);
    }
    true
}

/// Gives a Service the address and the node ports that its type needs. `old` is its stored state,
/// from which the update was completed.
pub(crate) fn allocate(
    api: &ApiServer,
    target: &Target,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let kind = text_at(service, "/spec/type").to_owned();
    let address = text_at(service, "/spec/clusterIP").to_owned();
    let had = old.map_or("", |old| text_at(old, "/spec/clusterIP"));
    let taken = taken(api, target);
    let mut errors = Vec::new();
    let range = api.options().service_range;
    match (kind.as_str(), address.as_str()) {
        ("ExternalName", _) => forget_address(service),
        (_, "None") => set_address(service, "None"),
        (_, "") => {
            let key = format!("{}/{}", target.namespace, target.name);
            let free = range.free(&key, &taken.addresses);
            let free = free
                .ok_or_else(|| error::internal("failed to allocate a serviceIP: range is full"))?;
            set_address(service, &free.to_string());
        }
        (_, asked) => {
            if asked != had {
                errors.extend(check_address(range, asked, &taken));
            }
            set_address(service, asked);
        }
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        give_ports(service, &kind, &taken, &mut errors)?;
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(error::invalid(target.resource, &target.name, &errors))
    }
}

/// What a client that knows nothing of it left out stays, and what the new type does not have goes.
fn carry_over(service: &mut Value, old: &Value) {
    let needs_ports =
        |object: &Value| matches!(text_at(object, "/spec/type"), "NodePort" | "LoadBalancer");
    let is_named = |object: &Value| text_at(object, "/spec/type") == "ExternalName";
    if text_at(service, "/spec/clusterIP").is_empty() && !is_named(service) && !is_named(old) {
        service["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
    }
    if !needs_ports(old) || !needs_ports(service) {
        return;
    }
    let old_ports = list_at(old, "/spec/ports").to_vec();
    let ports = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        let same =
            |old: &&Value| old["port"] == port["port"] && old["protocol"] == port["protocol"];
        let unset = port["nodePort"].as_i64().unwrap_or_default() == 0;
        if let Some(old) = old_ports.iter().find(same)
            && unset
            && old["nodePort"].is_number()
        {
            port["nodePort"] = old["nodePort"].clone();
        }
    }
}

/// What a Service no longer needs when its type changes; before validation.
pub(crate) fn drop_unneeded(service: &mut Value, old: &Value) {
    let kind = text_at(service, "/spec/type").to_owned();
    if kind == "ExternalName" && service["spec"]["clusterIP"] == old["spec"]["clusterIP"] {
        forget_address(service);
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        return;
    }
    let old_ports: Vec<Value> = list_at(old, "/spec/ports")
        .iter()
        .map(|port| port["nodePort"].clone())
        .collect();
    let ports = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if port
            .get("nodePort")
            .is_some_and(|own| old_ports.contains(own))
        {
            port.remove("nodePort");
        }
    }
    if list_at(service, "/spec/externalIPs").is_empty()
        && service["spec"]["externalTrafficPolicy"] == old["spec"]["externalTrafficPolicy"]
        && let Some(spec) = service.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        spec.remove("externalTrafficPolicy");
    }
}

fn set_address(service: &mut Value, address: &str) {
    let spec = &mut service["spec"];
    spec["clusterIP"] = address.into();
    spec["clusterIPs"] = json!([address]);
    if !spec["ipFamilies"].is_array() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if !spec["ipFamilyPolicy"].is_string() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

fn forget_address(service: &mut Value) {
    if let Some(spec) = service.pointer_mut("/spec").and_then(Value::as_object_mut) {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(key);
        }
    }
}

fn check_address(range: ServiceRange, asked: &str, taken: &Taken) -> Option<FieldError> {
    let why = match asked.parse::<Ipv4Addr>() {
        Ok(address) if !range.contains(address) => format!(
            "the provided IP ({asked}) is not in the valid range. The range of valid IPs is {range}"
        ),
        Ok(address) if taken.addresses.contains(&address) => {
            "provided IP is already allocated".into()
        }
        Ok(_) => return None,
        Err(_) => "only addresses of IPv4 are given out here".into(),
    };
    let detail = format!("failed to allocate IP {asked}: {why}");
    Some(FieldError::invalid(
        "spec.clusterIPs",
        json!([asked]),
        detail,
    ))
}

fn give_ports(
    service: &mut Value,
    kind: &str,
    taken: &Taken,
    errors: &mut Vec<FieldError>,
) -> Result<(), ApiError> {
    let mut own: HashSet<(String, i64)> = HashSet::new();
    let wants_more = kind == "NodePort"
        || service["spec"]["allocateLoadBalancerNodePorts"].as_bool() != Some(false);
    let Some(ports) = service["spec"]["ports"].as_array_mut() else {
        return Ok(());
    };
    for (index, port) in ports.iter().enumerate() {
        let asked = port["nodePort"].as_i64().unwrap_or_default();
        if asked == 0 {
            continue;
        }
        let key = (text_at(port, "/protocol").to_owned(), asked);
        let detail = if !NODE_PORTS.contains(&asked) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if taken.ports.contains(&key) {
            "provided port is already allocated"
        } else {
            own.insert(key);
            continue;
        };
        let field = format!("spec.ports[{index}].nodePort");
        errors.push(FieldError::invalid(field, asked.into(), detail));
    }
    if !wants_more {
        return Ok(());
    }
    for port in ports {
        if port["nodePort"].as_i64().unwrap_or_default() != 0 {
            continue;
        }
        let protocol = text_at(port, "/protocol").to_owned();
        let mut free = NODE_PORTS.map(|number| (protocol.clone(), number));
        let key = free
            .find(|key| !taken.ports.contains(key) && !own.contains(key))
            .ok_or_else(|| error::internal("failed to allocate a nodePort: range is full"))?;
        port["nodePort"] = key.1.into();
        own.insert(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_refused_when_no_node_port_is_left_for_it() {
        let ports = NODE_PORTS.map(|number| ("TCP".to_owned(), number));
        let mut taken = Taken {
            ports: ports.collect(),
            ..Taken::default()
        };
        let port = json!({ "port": 80, "protocol": "TCP" });
        let service = json!({ "spec": { "type": "NodePort", "ports": [port] } });
        let mut errors = Vec::new();
        let full = give_ports(&mut service.clone(), "NodePort", &taken, &mut errors);
        let why = full.unwrap_err().to_string();
        assert!(why.contains("range is full"), "{why}");
        taken.ports.remove(&("TCP".to_owned(), 31_000));
        let mut lucky = service;
        give_ports(&mut lucky, "NodePort", &taken, &mut errors).unwrap();
        assert_eq!(lucky["spec"]["ports"][0]["nodePort"], 31_000);
        assert!(errors.is_empty());
    }

    #[test]
    fn an_update_that_keeps_type_address_and_ports_needs_nothing() {
        let port = json!({ "port": 80, "protocol": "TCP", "nodePort": 30_001 });
        let old = json!({ "spec": {
            "type": "NodePort", "clusterIP": "10.96.0.9", "ports": [port],
        } });
        // What a client left out is completed first.
        let mut labelled = old.clone();
        labelled["metadata"] = json!({ "labels": { "a": "b" } });
        labelled["spec"]["clusterIP"] = Value::Null;
        labelled["spec"]["ports"][0]["nodePort"] = 0.into();
        assert!(is_settled(&mut labelled, &old));
        assert_eq!(labelled["spec"]["clusterIPs"], json!(["10.96.0.9"]));
        let changes = [
            ("type", json!("ClusterIP")),
            ("clusterIP", json!("10.96.0.10")),
            ("ports", json!([port, { "port": 81, "protocol": "TCP" }])),
        ];
        for (field, value) in changes {
            let mut changed = old.clone();
            changed["spec"][field] = value;
            assert!(!is_settled(&mut changed, &old), "{field}");
        }
        let mut unset = old.clone();
        unset["spec"]["clusterIP"] = Value::Null;
        assert!(!is_settled(&mut unset.clone(), &unset), "it has no address");
    }

    #[test]
    fn a_range_is_aligned_and_neither_too_small_nor_too_large() {
        assert_eq!("10.96.0.0/16".parse(), Ok(ServiceRange::default()));
        assert_eq!(ServiceRange::default().to_string(), "10.96.0.0/16");
        assert_eq!(ServiceRange::default().first(), Ipv4Addr::new(10, 96, 0, 1));
        for text in [
            "10.96.0.1/16",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "10.0.0.0",
            "::/64",
        ] {
            assert!(text.parse::<ServiceRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_address_is_given_out_once_and_the_first_ones_last() {
        let range: ServiceRange = "10.0.0.0/26".parse().unwrap();
        let mut taken = HashSet::new();
        let mut given = Vec::new();
        while let Some(address) = range.free("default/web", &taken) {
            assert!(range.contains(address) && taken.insert(address));
            given.push(address);
        }
        assert_eq!(given.len(), 62);
        assert!(given[..46].iter().all(|address| address.octets()[3] > 16));
        assert_eq!(
            range.free("a", &HashSet::new()),
            range.free("a", &HashSet::new())
        );
    }
}
