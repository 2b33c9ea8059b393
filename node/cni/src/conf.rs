//! The plugin's conf: the ordinary fields of `bridge` and `host-local`, and what is not served.
//!
//! [`fields`] is the JSON as it may be written, [`NetworkConf`] what it means. Nothing that
//! somebody wrote is ignored: a field that is unknown or not served is an error that names it.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::NetworkError;
use crate::host_ports::{PortMapping, Protocol};
use crate::ipam::Lease;
use crate::ipam::range::Range;
use crate::ipam::range_set::RangeSet;
use crate::netlink::route::Hop;
use crate::result::Dns;

mod culprit;
mod extras;
mod fields;
mod removal;
mod restrictions;

pub(crate) use extras::Extras;
use fields::{Fields, IpamFields, PortFields, RangeFields};
pub(crate) use restrictions::{Restrictions, VlanConf};

/// Longest name of a network interface (`IFNAMSIZ` without its zero, include/uapi/linux/if.h).
pub(crate) const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Most bridges of one network.
const BRIDGES_MAX: usize = 64;
/// Most range sets of one network, and so addresses of one pod.
const RANGE_SETS_MAX: usize = 8;
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
    /// Per bridge, then per address that a pod gets.
    pub(crate) range_sets: Vec<Vec<RangeSet>>,
    /// Subnets of all ranges, before they were divided among bridges.
    pub(crate) subnets: Vec<IpNet>,
    /// Routes of the pod; without a gateway they go through that of the pod's subnet.
    pub(crate) routes: Vec<Hop>,
    pub(crate) is_default_gateway: bool,
    pub(crate) dns: Dns,
    /// What one pod asks for, and what is beside the network itself.
    pub(crate) extras: Extras,
    /// What bounds a pod.
    pub(crate) restrictions: Restrictions,
    /// Ports of the node that lead to the pod.
    pub(crate) ports: Vec<PortMapping>,
    /// GC: what still lives, as (container id, interface).
    pub(crate) valid_attachments: Vec<(String, String)>,
}

impl NetworkConf {
    /// Reads and checks a conf.
    pub fn parse(json: &[u8]) -> Result<Self, NetworkError> {
        let fields: Result<Fields, _> = serde_json::from_slice(json);
        let fields = fields.map_err(|error| culprit::named(json, error))?;
        fields.refuse_what_is_not_served()?;
        let bridges = bridge_names(&fields)?;
        let sets = range_sets(&fields.ipam)?;
        let ranges = sets.iter().flat_map(RangeSet::ranges);
        let subnets = ranges.map(|range| range.subnet).collect();
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
        let runtime = fields.runtime_config;
        let restrictions = Restrictions::new(&fields.restrictions, runtime.bandwidth)?;
        restrictions.vlan.fits(&bridges)?;
        Ok(Self {
            range_sets: divide(sets, bridges.len())?,
            routes: routes(&fields.ipam)?,
            dns: runtime.dns.over(dns(&fields.dns, &fields.ipam)?),
            extras: Extras::new(fields.extras, &runtime.ips, &runtime.mac)?,
            restrictions,
            ports: ports(&runtime.port_mappings)?,
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

    /// The routes of a pod with this lease, as the result shows them.
    pub(crate) fn pod_routes(&self, lease: &Lease) -> Vec<Hop> {
        let mut routes = self.routes.clone();
        for gateway in lease.addresses.iter().map(|leased| leased.gateway) {
            let destination = match gateway {
                IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
                IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
            };
            // One per family: the first set of the family has it.
            if self.is_default_gateway && !routes.iter().any(|hop| hop.destination == destination) {
                routes.push(Hop {
                    destination,
                    gateway: Some(gateway),
                });
            }
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

/// The range sets as they are written: a pod gets an address of each.
fn range_sets(ipam: &IpamFields) -> Result<Vec<RangeSet>, NetworkError> {
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
    if !(1..=RANGE_SETS_MAX).contains(&written.len()) {
        let reason = format!("{} range sets given: 1 to 8 are served", written.len());
        return Err(conf("ipam.ranges", &reason));
    }
    let mut sets: Vec<RangeSet> = Vec::new();
    for ranges in &written {
        let ranges: Result<_, _> = ranges.iter().map(range).collect();
        let set = RangeSet::new(ranges?).map_err(|error| wrong_range(&error))?;
        for before in &sets {
            let apart = before.refuse_overlap(&set);
            apart.map_err(|error| wrong_range(&error))?;
        }
        sets.push(set);
    }
    Ok(sets)
}

fn range(fields: &RangeFields) -> Result<Range, NetworkError> {
    let subnet = fields.subnet.parse();
    let no_subnet = || format!("{:?} is not a subnet", fields.subnet);
    let subnet = subnet.map_err(|_| conf("ipam.subnet", &no_subnet()))?;
    Range::new(subnet, fields.range_start, fields.range_end, fields.gateway)
        .map_err(|error| wrong_range(&error))
}

fn wrong_range(error: &dyn std::error::Error) -> NetworkError {
    conf("ipam.ranges", &error.to_string())
}

/// All range sets for each bridge. Several bridges share each subnet by halves, quarters, …: each
/// bridge is the gateway of its own part, so pods on different bridges reach each other by routing.
fn divide(sets: Vec<RangeSet>, bridges: usize) -> Result<Vec<Vec<RangeSet>>, NetworkError> {
    if bridges == 1 {
        return Ok(vec![sets]);
    }
    let mut per_bridge = vec![Vec::new(); bridges];
    for set in &sets {
        for (bridge, part) in per_bridge.iter_mut().zip(parts(set, bridges)?) {
            bridge.push(part);
        }
    }
    Ok(per_bridge)
}

/// One part of the set's subnet for each bridge.
fn parts(set: &RangeSet, bridges: usize) -> Result<Vec<RangeSet>, NetworkError> {
    let [range] = set.ranges() else {
        return Err(conf(
            "bridges",
            "more than one needs exactly one range in each set",
        ));
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
            RangeSet::new(vec![range]).map_err(|error| wrong_range(&error))
        })
        .collect()
}

fn routes(ipam: &IpamFields) -> Result<Vec<Hop>, NetworkError> {
    let mut routes: Vec<Hop> = Vec::new();
    for route in &ipam.routes {
        let destination: IpNet = route
            .dst
            .parse()
            .map_err(|_| conf("ipam.routes", &format!("{:?} is not a subnet", route.dst)))?;
        let is_v4 = destination.addr().is_ipv4();
        if route.gw.is_some_and(|gateway| gateway.is_ipv4() != is_v4) {
            let reason = format!("gw of {:?} is of the other family", route.dst);
            return Err(conf("ipam.routes", &reason));
        }
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
            let host_ip =
                match one.host_ip.as_str() {
                    "" => None,
                    text => Some(text.parse().map_err(|_| {
                        conf(field, &format!("hostIP {text:?} is not an IP address"))
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

/// The conf's own word, or else what the file says.
fn dns(written: &Dns, ipam: &IpamFields) -> Result<Dns, NetworkError> {
    match &ipam.resolv_conf {
        Some(path) if !path.is_empty() && written.is_empty() => {
            Dns::from_resolv_conf(path.as_ref())
        }
        _ => Ok(written.clone()),
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
