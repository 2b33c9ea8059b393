//! A conf for DEL: which network it is, and where its files are. Nothing else matters any more, and
//! nothing that somebody wrote into it later must keep a pod's parts here for ever.

use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::Value;

use super::fields::refuse_identity;
use super::{Extras, NetworkConf, Restrictions};
use crate::error::NetworkError;
use crate::result::Dns;

impl NetworkConf {
    /// Reads a conf for DEL.
    pub(crate) fn parse_to_remove(json: &[u8]) -> Result<Self, NetworkError> {
        let fields: Value = serde_json::from_slice(json).map_err(NetworkError::Decode)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (cni_version, name) = (text(&fields["cniVersion"]), text(&fields["name"]));
        refuse_identity(&cni_version, &name)?;
        let ipam = &fields["ipam"];
        let data_dir = Some(text(&ipam["dataDir"])).filter(|dir| !dir.is_empty());
        Ok(Self {
            cni_version,
            name,
            data_dir: data_dir.map(PathBuf::from),
            subnets: subnets(ipam),
            bridges: Vec::new(),
            is_gateway: false,
            masquerade: false,
            hairpin: false,
            promiscuous: false,
            mtu: None,
            range_sets: Vec::new(),
            routes: Vec::new(),
            is_default_gateway: false,
            dns: Dns::default(),
            extras: Extras::default(),
            restrictions: Restrictions::none(),
            ports: Vec::new(),
            valid_attachments: Vec::new(),
        })
    }
}

/// Those that are well written, in the order of [`NetworkConf::subnets`].
fn subnets(ipam: &Value) -> Vec<IpNet> {
    let sets = ipam["ranges"].as_array().into_iter().flatten();
    let ranges = sets.filter_map(Value::as_array).flatten();
    let written = [ipam].into_iter().chain(ranges);
    let subnets = written.filter_map(|range| range["subnet"].as_str()?.parse().ok());
    subnets.map(|subnet: IpNet| subnet.trunc()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_in_a_conf_does_not_matter_to_del() {
        let written = json!({
            "cniVersion": "1.0.0", "name": "pods", "addedLater": true, "mtu": "large",
            "bridges": 1000, "runtimeConfig": { "mac": 7 }, "prevResult": [],
            "ipam": { "type": "static", "dataDir": "/data", "subnet": "10.88.0.0/16", "new": 1,
                      "ranges": [[{ "subnet": "fd88::/64" }], [{ "subnet": "?" }], 5] },
        });
        let bytes = written.to_string().into_bytes();
        assert!(NetworkConf::parse(&bytes).is_err());
        let conf = NetworkConf::parse_to_remove(&bytes).unwrap();
        assert_eq!(conf.name, "pods");
        assert_eq!(conf.data_dir, Some(PathBuf::from("/data")));
        let subnets = ["10.88.0.0/16", "fd88::/64"].map(|text| text.parse().unwrap());
        assert_eq!(conf.subnets, subnets);
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused_even_to_del() {
        for name in ["../pods", "", ".hidden"] {
            let written = json!({ "cniVersion": "1.0.0", "name": name }).to_string();
            let error = NetworkConf::parse_to_remove(written.as_bytes()).unwrap_err();
            assert!(matches!(error, NetworkError::Conf { field, .. } if field == "name"));
        }
    }
}
