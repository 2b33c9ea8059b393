//! What the runtime is told, in the version that the conf asks for.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::{NetworkError, file_error};
use crate::ipam::{Lease, LeasedAddress};
use crate::mac::Mac;
use crate::netlink::route::Hop;

/// Place of the pod's own interface in the list of interfaces.
const POD_INTERFACE: usize = 2;

/// `dns` of a conf and of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nameservers: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    domain: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

/// The result of ADD.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddResult {
    cni_version: String,
    interfaces: Vec<Interface>,
    ips: Vec<Ip>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Debug, Serialize)]
struct Interface {
    name: String,
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
}

#[derive(Debug, Serialize)]
struct Ip {
    /// Until 0.4.0 an address carried the number of its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    interface: usize,
    address: IpNet,
    gateway: IpAddr,
}

#[derive(Debug, Serialize)]
struct Route {
    dst: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

/// What ADD did, for the result.
pub(crate) struct Attached<'a> {
    pub(crate) bridge: (&'a str, Mac),
    pub(crate) host: (&'a str, Mac),
    pub(crate) pod: (&'a str, Mac),
    /// More interfaces on the host.
    pub(crate) others: Vec<(&'a str, Mac)>,
    pub(crate) netns: &'a str,
    pub(crate) mtu: Option<u32>,
    pub(crate) lease: &'a Lease,
    pub(crate) routes: &'a [Hop],
    pub(crate) dns: &'a Dns,
}

impl AddResult {
    /// The result in the conf's version.
    pub(crate) fn new(cni_version: &str, attached: &Attached<'_>) -> Self {
        // Interfaces have an MTU since 1.1.0.
        let mtu = attached.mtu.filter(|_| cni_version == "1.1.0");
        let interface = |(name, mac): (&str, Mac), sandbox: Option<&str>| Interface {
            name: name.to_owned(),
            mac: mac.to_string(),
            mtu,
            sandbox: sandbox.map(ToOwned::to_owned),
        };
        Self {
            cni_version: cni_version.to_owned(),
            interfaces: [
                interface(attached.bridge, None),
                interface(attached.host, None),
                interface(attached.pod, Some(attached.netns)),
            ]
            .into_iter()
            .chain(attached.others.iter().map(|other| interface(*other, None)))
            .collect(),
            ips: attached
                .lease
                .addresses
                .iter()
                .map(|leased| Ip::new(cni_version, leased))
                .collect(),
            routes: attached
                .routes
                .iter()
                .map(|hop| Route {
                    dst: hop.destination,
                    gw: hop.gateway,
                })
                .collect(),
            dns: attached.dns.clone(),
        }
    }
}

impl Ip {
    fn new(cni_version: &str, leased: &LeasedAddress) -> Self {
        let family = if leased.gateway.is_ipv4() { "4" } else { "6" };
        Self {
            version: cni_version.starts_with("0.").then_some(family),
            interface: POD_INTERFACE,
            address: leased.address,
            gateway: leased.gateway,
        }
    }
}

impl Dns {
    /// Whether it says anything.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// With what another source says, where it says something.
    pub(crate) fn replaced_by(
        mut self,
        nameservers: Vec<String>,
        search: Vec<String>,
        options: Vec<String>,
    ) -> Self {
        for (field, other) in [
            (&mut self.nameservers, nameservers),
            (&mut self.search, search),
            (&mut self.options, options),
        ] {
            if !other.is_empty() {
                *field = other;
            }
        }
        self
    }

    /// Reads a file in the form of resolv.conf(5).
    pub(crate) fn from_resolv_conf(path: &Path) -> Result<Self, NetworkError> {
        let text = fs::read_to_string(path).map_err(file_error("read", path))?;
        let mut dns = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => dns.nameservers.extend(words.next().map(str::to_owned)),
                Some("domain") => words.next().unwrap_or_default().clone_into(&mut dns.domain),
                Some("search") => dns.search.extend(words.map(str::to_owned)),
                Some("options") => dns.options.extend(words.map(str::to_owned)),
                _ => (),
            }
        }
        Ok(dns)
    }
}
