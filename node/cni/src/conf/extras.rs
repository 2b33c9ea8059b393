//! Fields beside the network itself: what one pod asks for, what others left, switches.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::fields::{NOT_SERVED, asks_for_something, refused};
use crate::args::CniArgs;
use crate::error::NetworkError;
use crate::mac::Mac;
use crate::previous::PreviousResult;
use crate::result::Dns;
use crate::sysctl::Sysctl;

/// Members of `args.cni` that label the pod for others.
const LABELS: &str = "labels";

/// What a conf asks for beside the network itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Another address of the bridge gives way to the network's own.
    pub(crate) force_address: bool,
    /// Pods reach the node, not each other.
    pub(crate) port_isolation: bool,
    /// Settings of the pod's namespace.
    pub(crate) sysctls: Vec<Sysctl>,
    /// Addresses that the pod is to have.
    pub(crate) ips: Vec<IpAddr>,
    /// Hardware address that the pod's interface is to have.
    pub(crate) mac: Option<Mac>,
    /// `prevResult`.
    pub(crate) previous: Option<PreviousResult>,
}

/// Top level.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExtraFields {
    #[serde(default)]
    force_address: bool,
    #[serde(default)]
    port_isolation: bool,
    /// Of the plugin `tuning`.
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
    prev_result: Option<PreviousResult>,
    #[serde(default)]
    args: ArgsFields,
}

/// `args`, of which `cni` is for plugins of networks (CONVENTIONS.md of CNI).
#[derive(Default, Deserialize)]
struct ArgsFields {
    #[serde(default)]
    cni: AskedFields,
}

/// What one pod asks for: `args.cni`, and the capabilities of the same names in `runtimeConfig`.
#[derive(Default, Deserialize)]
pub(super) struct AskedFields {
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default)]
    mac: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// `runtimeConfig.dns`, whose members are not named as those of a conf (CONVENTIONS.md).
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RuntimeDns {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl Extras {
    /// Checks the fields. Of two wishes for a hardware address the runtime's wins.
    pub(super) fn new(
        fields: ExtraFields,
        runtime_ips: &[String],
        runtime_mac: &str,
    ) -> Result<Self, NetworkError> {
        let asked = fields.args.cni;
        let unknown = |(name, value): &(&String, &Value)| {
            name.as_str() != LABELS && asks_for_something(value)
        };
        if let Some((name, _)) = asked.rest.iter().find(unknown) {
            return Err(refused(&format!("args.cni.{name}"), NOT_SERVED));
        }
        let mut ips = addresses("args.cni.ips", &asked.ips)?;
        ips.extend(addresses("runtimeConfig.ips", runtime_ips)?);
        let args_mac = mac("args.cni.mac", &asked.mac)?;
        let sysctls = fields.sysctl.iter().map(|(key, value)| {
            let outside = "is not a setting of the network (net.*)";
            Sysctl::new(key, value).ok_or_else(|| refused(&format!("sysctl.{key}"), outside))
        });
        Ok(Self {
            force_address: fields.force_address,
            port_isolation: fields.port_isolation,
            sysctls: sysctls.collect::<Result<_, _>>()?,
            ips,
            mac: mac("runtimeConfig.mac", runtime_mac)?.or(args_mac),
            previous: fields.prev_result,
        })
    }

    /// Adds what `CNI_ARGS` asks for: one address more, and a hardware address if nobody else
    /// asked for one, in the order of the reference plugins.
    pub(crate) fn add(&mut self, args: &CniArgs) {
        self.ips.extend(args.ip);
        self.mac = self.mac.or(args.mac);
    }
}

impl RuntimeDns {
    /// The runtime's word, where it has one.
    pub(super) fn over(self, dns: Dns) -> Dns {
        dns.replaced_by(self.servers, self.searches, self.options)
    }
}

/// Addresses, with or without the length of their subnet, which the ranges say.
fn addresses(field: &str, texts: &[String]) -> Result<Vec<IpAddr>, NetworkError> {
    let parse = |text: &String| {
        let net = || text.parse::<IpNet>().ok().map(|net| net.addr());
        let address = text.parse().ok().or_else(net);
        address.ok_or_else(|| refused(field, &format!("{text:?} is no address")))
    };
    texts.iter().map(parse).collect()
}

fn mac(field: &str, text: &str) -> Result<Option<Mac>, NetworkError> {
    if text.is_empty() {
        return Ok(None);
    }
    let reason = format!("{text:?} is no hardware address of an interface");
    text.parse().map(Some).map_err(|()| refused(field, &reason))
}
