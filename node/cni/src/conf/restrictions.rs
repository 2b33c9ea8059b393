//! Fields that bound what a pod may send: bandwidth, hardware addresses, VLANs.

use std::ops::RangeInclusive;

use serde::Deserialize;

use super::INTERFACE_NAME_BYTES_MAX;
use super::fields::refused;
use crate::bandwidth::{Bandwidth, Limit};
use crate::bridge::vlan_gateway;
use crate::error::NetworkError;

/// VLANs that a frame may be in (IEEE 802.1Q; 0 and 4095 are reserved).
const VLANS: RangeInclusive<u16> = 1..=4094;

/// What bounds a pod of this network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restrictions {
    /// `macspoofchk`: frames from a source that is not the pod's are dropped.
    pub(crate) mac_spoof: bool,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) vlan: VlanConf,
}

/// The VLANs of a pod's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VlanConf {
    /// The one whose frames have no tag in the pod.
    pub(crate) untagged: Option<u16>,
    /// Those that pass with their tags.
    pub(crate) tagged: Vec<RangeInclusive<u16>>,
    /// The port stays in the VLAN in which all ports are at first.
    pub(crate) keep_default: bool,
}

/// Top level.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RestrictionFields {
    #[serde(default, rename = "macspoofchk")]
    mac_spoof: bool,
    #[serde(default)]
    vlan: u16,
    #[serde(default)]
    vlan_trunk: Vec<TrunkFields>,
    /// The reference's default is `true` (plugins/main/bridge/bridge.go).
    preserve_default_vlan: Option<bool>,
    ingress_rate: Option<u64>,
    ingress_burst: Option<u64>,
    egress_rate: Option<u64>,
    egress_burst: Option<u64>,
}

/// One entry of `vlanTrunk`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrunkFields {
    #[serde(rename = "minID")]
    min_id: Option<u16>,
    #[serde(rename = "maxID")]
    max_id: Option<u16>,
    id: Option<u16>,
}

/// `runtimeConfig.bandwidth`, of the capability of that name. containerd writes the names with a
/// capital, which the reference plugins take as the same.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct BandwidthFields {
    #[serde(alias = "IngressRate")]
    ingress_rate: u64,
    #[serde(alias = "IngressBurst")]
    ingress_burst: u64,
    #[serde(alias = "EgressRate")]
    egress_rate: u64,
    #[serde(alias = "EgressBurst")]
    egress_burst: u64,
}

impl Restrictions {
    /// Those of a pod that nothing bounds.
    pub(super) fn none() -> Self {
        Self {
            mac_spoof: false,
            bandwidth: Bandwidth::default(),
            vlan: VlanConf {
                untagged: None,
                tagged: Vec::new(),
                keep_default: true,
            },
        }
    }

    /// Checks the fields.
    pub(super) fn new(
        fields: &RestrictionFields,
        runtime: Option<BandwidthFields>,
    ) -> Result<Self, NetworkError> {
        // What the conf itself says wins, as with the reference (plugins/meta/bandwidth/main.go).
        let limits = fields.bandwidth().or(runtime).unwrap_or_default();
        Ok(Self {
            mac_spoof: fields.mac_spoof,
            bandwidth: limits.buckets()?,
            vlan: VlanConf::new(fields)?,
        })
    }
}

impl VlanConf {
    /// Whether the bridge has to tell VLANs apart.
    pub(crate) fn is_wanted(&self) -> bool {
        self.untagged.is_some() || !self.tagged.is_empty()
    }

    /// The gateways of a VLAN are named after their bridges, and by its number.
    pub(super) fn fits(&self, bridges: &[String]) -> Result<(), NetworkError> {
        let too_long = |vlan: u16| {
            let mut names = bridges
                .iter()
                .map(|bridge| vlan_gateway::name(bridge, vlan));
            names.any(|name| name.len() > INTERFACE_NAME_BYTES_MAX)
        };
        if self.untagged.is_some_and(too_long) {
            return Err(refused("bridge", "is too long a name for one with a vlan"));
        }
        Ok(())
    }

    fn new(fields: &RestrictionFields) -> Result<Self, NetworkError> {
        if fields.vlan != 0 && !VLANS.contains(&fields.vlan) {
            return Err(refused("vlan", "must be 0 to 4094"));
        }
        let tagged = fields.vlan_trunk.iter().map(TrunkFields::ranges);
        let tagged: Vec<Vec<_>> = tagged.collect::<Result<_, _>>()?;
        Ok(Self {
            untagged: (fields.vlan != 0).then_some(fields.vlan),
            tagged: tagged.concat(),
            keep_default: fields.preserve_default_vlan.unwrap_or(true),
        })
    }
}

impl TrunkFields {
    fn ranges(&self) -> Result<Vec<RangeInclusive<u16>>, NetworkError> {
        let range = match (self.min_id, self.max_id) {
            (Some(first), Some(last)) => Some(first..=last),
            (None, None) => None,
            _ => return Err(refused("vlanTrunk", "needs minID and maxID together")),
        };
        let single = self.id.map(|id| id..=id);
        let ranges: Vec<_> = range.into_iter().chain(single).collect();
        let fits = |range: &RangeInclusive<u16>| {
            !range.is_empty() && VLANS.contains(range.start()) && VLANS.contains(range.end())
        };
        if !ranges.iter().all(fits) {
            return Err(refused(
                "vlanTrunk",
                "must be VLANs of 1 to 4094, the first one first",
            ));
        }
        Ok(ranges)
    }
}

impl RestrictionFields {
    /// The limits that the conf has for every pod, if it has any.
    fn bandwidth(&self) -> Option<BandwidthFields> {
        let all = [
            self.ingress_rate,
            self.ingress_burst,
            self.egress_rate,
            self.egress_burst,
        ];
        let [ingress_rate, ingress_burst, egress_rate, egress_burst] =
            all.map(Option::unwrap_or_default);
        all.iter().any(Option::is_some).then_some(BandwidthFields {
            ingress_rate,
            ingress_burst,
            egress_rate,
            egress_burst,
        })
    }
}

impl BandwidthFields {
    fn buckets(self) -> Result<Bandwidth, NetworkError> {
        let limit = |direction, rate_bits_per_s, burst_bits| Limit {
            direction,
            rate_bits_per_s,
            burst_bits,
        };
        Ok(Bandwidth {
            ingress: limit("ingress", self.ingress_rate, self.ingress_burst).bucket()?,
            egress: limit("egress", self.egress_rate, self.egress_burst).bucket()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::NetworkConf;
    use super::*;

    fn parsed(fields: &Value) -> Result<Restrictions, String> {
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": "pods",
            "ipam": { "type": "host-local", "subnet": "10.88.0.0/16" },
        });
        for (name, value) in fields.as_object().unwrap() {
            conf[name] = value.clone();
        }
        let conf = NetworkConf::parse(conf.to_string().as_bytes());
        conf.map(|conf| conf.restrictions)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_conf_that_bounds_nothing_bounds_nothing() {
        let none = parsed(&json!({})).unwrap();
        assert!(!none.mac_spoof && !none.vlan.is_wanted());
        assert_eq!(none.bandwidth, Bandwidth::default());
        let zeros = json!({"vlan": 0, "vlanTrunk": [], "macspoofchk": false,
            "runtimeConfig": {"bandwidth": {"IngressRate": 0}}});
        assert_eq!(parsed(&zeros).unwrap(), none);
    }

    #[test]
    fn the_runtimes_limits_are_read_as_containerd_writes_them_and_the_confs_own_win() {
        let burst = u32::MAX;
        let runtime = json!({"bandwidth": {"IngressRate": 1_000_000, "IngressBurst": burst,
            "EgressRate": 2_000_000, "EgressBurst": burst}});
        let both = parsed(&json!({"runtimeConfig": runtime}))
            .unwrap()
            .bandwidth;
        let rates = [both.ingress, both.egress].map(|bucket| bucket.unwrap().rate_bytes_per_s);
        assert_eq!(rates, [125_000, 250_000]);
        let own = json!({"egressRate": 8000, "egressBurst": 8000, "runtimeConfig": runtime});
        let own = parsed(&own).unwrap().bandwidth;
        assert_eq!(own.ingress, None);
        assert_eq!(own.egress.unwrap().rate_bytes_per_s, 1000);
        let refusal = parsed(&json!({"egressRate": 8000})).unwrap_err();
        assert!(refusal.contains("bandwidth.egressBurst"), "{refusal}");
        let refusal = parsed(&json!({"unshapedSubnets": ["10.0.0.0/8"]})).unwrap_err();
        assert!(refusal.contains("unshapedSubnets"), "{refusal}");
    }

    #[test]
    fn vlans_are_numbers_that_a_frame_can_have() {
        let trunk = json!([{"minID": 10, "maxID": 12}, {"id": 20}]);
        let fields = json!({"vlan": 5, "vlanTrunk": trunk, "preserveDefaultVlan": false});
        let vlan = parsed(&fields).unwrap().vlan;
        assert_eq!(vlan.untagged, Some(5));
        assert_eq!(vlan.tagged, [10..=12, 20..=20]);
        assert!(!vlan.keep_default && vlan.is_wanted());
        let long = json!({"vlan": 4094, "bridge": "br-of-eleven"});
        assert!(parsed(&long).unwrap_err().contains("bridge"));
        for wrong in [
            json!({"vlan": 4095}),
            json!({"vlanTrunk": [{"minID": 10}]}),
            json!({"vlanTrunk": [{"minID": 12, "maxID": 10}]}),
            json!({"vlanTrunk": [{"id": 4095}]}),
            json!({"vlanTrunk": [{"id": 0}]}),
        ] {
            assert!(parsed(&wrong).unwrap_err().contains("vlan"), "{wrong}");
        }
    }
}
