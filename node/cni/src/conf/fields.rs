//! The conf as JSON: the fields that are served, and a list of those that are known and not.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::extras::{ExtraFields, RuntimeDns};
use super::restrictions::{BandwidthFields, RestrictionFields};
use crate::error::NetworkError;
use crate::result::Dns;
use crate::shim::SUPPORTED_VERSIONS;

/// Fields that have a meaning for others (libcni, the runtime), or for the shim.
const OTHERS: [&str; 5] = [
    "type",
    "socket",
    "capabilities",
    "disableCheck",
    "cniVersions",
];

/// Top level.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fields {
    #[serde(default)]
    pub(super) cni_version: String,
    #[serde(default)]
    pub(super) name: String,
    pub(super) bridge: Option<String>,
    /// Ours: how many bridges share the subnet.
    pub(super) bridges: Option<usize>,
    #[serde(default)]
    pub(super) is_gateway: bool,
    #[serde(default)]
    pub(super) is_default_gateway: bool,
    #[serde(default)]
    pub(super) ip_masq: bool,
    #[serde(default)]
    pub(super) hairpin_mode: bool,
    #[serde(default)]
    pub(super) promisc_mode: bool,
    pub(super) mtu: Option<u32>,
    pub(super) ipam: IpamFields,
    #[serde(default)]
    pub(super) dns: Dns,
    #[serde(default)]
    pub(super) runtime_config: RuntimeFields,
    #[serde(flatten)]
    pub(super) extras: ExtraFields,
    #[serde(flatten)]
    pub(super) restrictions: RestrictionFields,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    pub(super) valid_attachments: Vec<Attachment>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// `runtimeConfig`: what the runtime adds for one pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuntimeFields {
    /// Of the capability `portMappings`.
    #[serde(default)]
    pub(super) port_mappings: Vec<PortFields>,
    /// Of the capability `bandwidth`.
    pub(super) bandwidth: Option<BandwidthFields>,
    /// Of the capability `ips`.
    #[serde(default)]
    pub(super) ips: Vec<String>,
    /// Of the capability `mac`.
    #[serde(default)]
    pub(super) mac: String,
    /// Of the capability `dns`.
    #[serde(default)]
    pub(super) dns: RuntimeDns,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// One entry of `runtimeConfig.portMappings`. containerd writes the names with a capital, which
/// the reference plugins take as the same.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PortFields {
    #[serde(alias = "HostPort")]
    pub(super) host_port: u16,
    #[serde(alias = "ContainerPort")]
    pub(super) container_port: u16,
    #[serde(default, alias = "Protocol")]
    pub(super) protocol: String,
    #[serde(default, rename = "hostIP", alias = "HostIP")]
    pub(super) host_ip: String,
}

/// `ipam`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IpamFields {
    #[serde(rename = "type")]
    pub(super) kind: String,
    subnet: Option<String>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
    #[serde(default)]
    pub(super) ranges: Vec<Vec<RangeFields>>,
    #[serde(default)]
    pub(super) routes: Vec<RouteFields>,
    pub(super) data_dir: Option<String>,
    pub(super) resolv_conf: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// One range of `ipam.ranges`.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RangeFields {
    pub(super) subnet: String,
    pub(super) range_start: Option<IpAddr>,
    pub(super) range_end: Option<IpAddr>,
    pub(super) gateway: Option<IpAddr>,
}

/// One route of `ipam.routes`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteFields {
    pub(super) dst: String,
    pub(super) gw: Option<IpAddr>,
}

/// One entry of `cni.dev/valid-attachments`.
#[derive(Deserialize)]
pub(super) struct Attachment {
    #[serde(rename = "containerID")]
    pub(super) container_id: String,
    pub(super) ifname: String,
}

impl Fields {
    /// Refuses what would otherwise be ignored, and versions that are not spoken.
    pub(super) fn refuse_what_is_not_served(&self) -> Result<(), NetworkError> {
        refuse_identity(&self.cni_version, &self.name)?;
        refuse_rest("", &self.rest)?;
        refuse_rest("ipam.", &self.ipam.rest)?;
        refuse_rest("runtimeConfig.", &self.runtime_config.rest)
    }
}

impl IpamFields {
    /// The range in the fields of `ipam` itself, as it was written before there were `ranges`.
    pub(super) fn old_range(&self) -> Option<RangeFields> {
        Some(RangeFields {
            subnet: self.subnet.clone()?,
            range_start: self.range_start,
            range_end: self.range_end,
            gateway: self.gateway,
        })
    }
}

/// Refuses versions that are not spoken, and names that are none of a folder.
pub(super) fn refuse_identity(cni_version: &str, name: &str) -> Result<(), NetworkError> {
    if !SUPPORTED_VERSIONS.contains(&cni_version) {
        return Err(NetworkError::Version(cni_version.to_owned()));
    }
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(refused("name", "is missing or no name for a folder"));
    }
    Ok(())
}

pub(super) const NOT_SERVED: &str = "is not served";

fn refuse_rest(prefix: &str, rest: &BTreeMap<String, Value>) -> Result<(), NetworkError> {
    let refusal = rest.iter().find(|(name, value)| {
        let for_others = prefix.is_empty() && OTHERS.contains(&name.as_str());
        !for_others && asks_for_something(value)
    });
    match refusal {
        Some((name, _)) => Err(refused(&format!("{prefix}{name}"), NOT_SERVED)),
        None => Ok(()),
    }
}

/// `false`, `0`, `""`, `[]`, `{}` and `null` ask for what happens anyway.
pub(super) fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

pub(super) fn refused(field: &str, reason: &str) -> NetworkError {
    NetworkError::Conf {
        field: field.to_owned(),
        reason: reason.to_owned(),
    }
}
