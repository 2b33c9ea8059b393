//! The plugin's conf: the ordinary fields of `bridge` and `host-local`, and what is not served.
//!
//! [`fields`] is the JSON as it may be written, [`NetworkConf`] what it means. Nothing that
//! somebody wrote is ignored: a field that is unknown or not served is an error that names it.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;

use crate::error::NetworkError;
use crate::host_ports::{PortMapping, Protocol};
use crate::ipam::range::Range;
use crate::ipam::range_set::RangeSet;
use crate::netlink::route::Hop;
use crate::result::Dns;

mod fields;

use fields::{Fields, IpamFields, PortFields};

/// Longest name of a network interface (`IFNAMSIZ` without its zero, include/uapi/linux/if.h).
pub(crate) const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Most bridges of one network.
const BRIDGES_MAX: usize = 64;
/// The bridge's name when the conf has none.
const DEFAULT_BRIDGE: &str = "swiftlet0";
/// Smallest MTU of IPv4 (RFC 791), largest of a veth.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65535;

/// What the conf asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConf {
    pub(crate) cni_version: String,
    pub(crate) name: String,
    /// One name per bridge.
    pub(crate) bridges: Vec<String>,
    pub(crate) is_gateway: bool,
    pub(crate) masquerade: bool,
    pub(crate) hairpin: bool,
    pub(crate) promiscuous: bool,
    pub(crate) mtu: Option<u32>,
    pub(crate) data_dir: Option<PathBuf>,
    /// One range set per bridge.
    pub(crate) range_sets: Vec<RangeSet>,
    /// Subnets of all ranges, before they were divided among bridges.
    pub(crate) subnets: Vec<Ipv4Net>,
    /// Routes of the pod; without a gateway they go through the subnet's.
    pub(crate) routes: Vec<Hop>,
    pub(crate) is_default_gateway: bool,
    pub(crate) dns: Dns,
    /// Ports of the node that lead to the pod.
    pub(crate) ports: Vec<PortMapping>,
    /// GC: what still lives, as (container id, interface).
    pub(crate) valid_attachments: Vec<(String, String)>,
}

impl NetworkConf {
    /// Reads and checks a conf.
    pub fn parse(json: &[u8]) -> Result<Self, NetworkError> {
        let fields: Fields = serde_json::from_slice(json).map_err(NetworkError::Decode)?;
        fields.refuse_what_is_not_served()?;
        let bridges = bridge_names(&fields)?;
        let ranges = ranges(&fields.ipam)?;
        let subnets = ranges.iter().map(|range| range.subnet).collect();
        if fields.hairpin_mode && fields.promisc_mode {
            return Err(conf(
                "promiscMode",
                "cannot be set together with hairpinMode",
            ));
        }
        let mtu = fields.mtu.filter(|mtu| *mtu != 0);
        if mtu.is_some_and(|mtu| !MTU_RANGE.contains(&mtu)) {
            return Err(conf("mtu", "must be 68 to 65535"));
        }
        Ok(Self {
            range_sets: divide(ranges, bridges.len())?,
            routes: routes(&fields.ipam)?,
            dns: dns(&fields)?,
            ports: ports(&fields.runtime_config.port_mappings)?,
            cni_version: fields.cni_version,
            name: fields.name,
            bridges,
            is_gateway: fields.is_gateway || fields.is_default_gateway,
            masquerade: fields.ip_masq,
            hairpin: fields.hairpin_mode,
            promiscuous: fields.promisc_mode,
            mtu,
            data_dir: fields
                .ipam
                .data_dir
                .filter(|dir| !dir.is_empty())
                .map(PathBuf::from),
            subnets,
            is_default_gateway: fields.is_default_gateway,
            valid_attachments: fields
                .valid_attachments
                .into_iter()
                .map(|attachment| (attachment.container_id, attachment.ifname))
                .collect(),
        })
    }

    /// Reads a conf for DEL: what the runtime asked for this one pod does not matter any more, and
    /// must not keep its parts here for ever.
    pub(crate) fn parse_to_remove(json: &[u8]) -> Result<Self, NetworkError> {
        let mut conf: serde_json::Value =
            serde_json::from_slice(json).map_err(NetworkError::Decode)?;
        if let Some(fields) = conf.as_object_mut() {
            fields.retain(|name, _| !["runtimeConfig", "args", "prevResult"].contains(&&**name));
        }
        Self::parse(conf.to_string().as_bytes())
    }

    /// The version in which an error about this conf is written.
    pub(crate) fn version_of(json: &[u8]) -> String {
        #[derive(serde::Deserialize)]
        struct Version {
            #[serde(rename = "cniVersion")]
            cni_version: String,
        }
        serde_json::from_slice::<Version>(json).map_or_else(
            |_| crate::shim::NEWEST_VERSION.to_owned(),
            |conf| conf.cni_version,
        )
    }

    /// The routes of a pod whose subnet has this gateway, as the result shows them.
    pub(crate) fn pod_routes(&self, gateway: Ipv4Addr) -> Vec<Hop> {
        let mut routes = self.routes.clone();
        let default = Ipv4Net::default();
        if self.is_default_gateway && !routes.iter().any(|hop| hop.destination == default) {
            routes.push(Hop {
                destination: default,
                gateway: Some(gateway),
            });
        }
        routes
    }
}

fn bridge_names(fields: &Fields) -> Result<Vec<String>, NetworkError> {
    let first = fields
        .bridge
        .clone()
        .unwrap_or_else(|| DEFAULT_BRIDGE.to_owned());
    let count = fields.bridges.unwrap_or(1);
    if !(1..=BRIDGES_MAX).contains(&count) {
        return Err(conf("bridges", "must be 1 to 64"));
    }
    // swiftlet0, swiftlet1, …; with one bridge the name is the conf's as it is.
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let names: Vec<_> = match count {
        1 => vec![first],
        _ => (0..count).map(|index| format!("{stem}{index}")).collect(),
    };
    for name in &names {
        let fits = (1..=INTERFACE_NAME_BYTES_MAX).contains(&name.len());
        if !fits || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
            return Err(conf(
                "bridge",
                &format!("{name:?} is no name for an interface"),
            ));
        }
    }
    Ok(names)
}

fn ranges(ipam: &IpamFields) -> Result<Vec<Range>, NetworkError> {
    if ipam.kind != "host-local" {
        return Err(conf(
            "ipam.type",
            &format!("{:?} is not served: use host-local", ipam.kind),
        ));
    }
    let mut written = ipam.ranges.clone();
    if let Some(range) = ipam.old_range() {
        written.insert(0, vec![range]);
    }
    let [set] = written.as_slice() else {
        let reason = format!("{} range sets given, exactly one is served", written.len());
        return Err(conf("ipam.ranges", &reason));
    };
    set.iter()
        .map(|range| {
            let subnet = range.subnet.parse().map_err(|_| {
                conf(
                    "ipam.subnet",
                    &format!("{:?} is not an IPv4 subnet", range.subnet),
                )
            })?;
            Range::new(subnet, range.range_start, range.range_end, range.gateway)
                .map_err(|error| conf("ipam.ranges", &error.to_string()))
        })
        .collect()
}

/// One range set per bridge. Several bridges share one subnet by halves, quarters, …: each bridge
/// is the gateway of its own part, so pods on different bridges reach each other by routing.
fn divide(ranges: Vec<Range>, bridges: usize) -> Result<Vec<RangeSet>, NetworkError> {
    let overlap = || conf("ipam.ranges", "ranges overlap, or there is none");
    if bridges == 1 {
        return Ok(vec![RangeSet::new(ranges).ok_or_else(overlap)?]);
    }
    let [range] = ranges.as_slice() else {
        return Err(conf("bridges", "more than one needs exactly one range"));
    };
    let whole = Range::new(range.subnet, None, None, None);
    if whole.as_ref() != Ok(range) {
        return Err(conf(
            "bridges",
            "more than one needs a subnet without start, end or gateway",
        ));
    }
    let bits = bridges.next_power_of_two().trailing_zeros();
    let prefix = u32::from(range.subnet.prefix_len()) + bits;
    let prefix = u8::try_from(prefix).unwrap_or(u8::MAX);
    let too_small = || conf("bridges", "the subnet is too small for so many");
    let parts = range.subnet.subnets(prefix).map_err(|_| too_small())?;
    parts
        .take(bridges)
        .map(|part| {
            let range = Range::new(part, None, None, None).map_err(|_| too_small())?;
            RangeSet::new(vec![range]).ok_or_else(overlap)
        })
        .collect()
}

fn routes(ipam: &IpamFields) -> Result<Vec<Hop>, NetworkError> {
    let mut routes: Vec<Hop> = Vec::new();
    for route in &ipam.routes {
        let destination: Ipv4Net = route.dst.parse().map_err(|_| {
            conf(
                "ipam.routes",
                &format!("{:?} is not an IPv4 subnet", route.dst),
            )
        })?;
        let hop = Hop {
            destination: destination.trunc(),
            gateway: route.gw,
        };
        // Of two routes to the same place the first one wins, as with the reference plugin.
        if !routes
            .iter()
            .any(|known| known.destination == hop.destination)
        {
            routes.push(hop);
        }
    }
    Ok(routes)
}

/// A container port without a host port asks for nothing.
fn ports(all: &[PortFields]) -> Result<Vec<PortMapping>, NetworkError> {
    let field = "runtimeConfig.portMappings";
    all.iter()
        .filter(|one| one.host_port != 0)
        .map(|one| {
            let protocol = match one.protocol.to_ascii_lowercase().as_str() {
                "tcp" | "" => Protocol::Tcp,
                "udp" => Protocol::Udp,
                "sctp" => Protocol::Sctp,
                other => return Err(conf(field, &format!("{other:?} is no protocol"))),
            };
            let host_ip = match one.host_ip.as_str() {
                "" | "0.0.0.0" => None,
                text => Some(text.parse().map_err(|_| {
                    conf(field, &format!("hostIP {text:?} is not an IPv4 address"))
                })?),
            };
            Ok(PortMapping {
                host_port: one.host_port,
                container_port: one.container_port,
                protocol,
                host_ip,
            })
        })
        .collect()
}

fn dns(fields: &Fields) -> Result<Dns, NetworkError> {
    match &fields.ipam.resolv_conf {
        Some(path) if !path.is_empty() => Dns::from_resolv_conf(path.as_ref()),
        _ => Ok(fields.dns.clone()),
    }
}

fn conf(field: &str, reason: &str) -> NetworkError {
    NetworkError::Conf {
        field: field.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;
