//! The conf that tells containerd to ask this program.

use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::disk;

/// Name of the file: before everything that a package installs, because the first one wins.
pub const FILE_NAME: &str = "10-swiftlet.conflist";
/// containerd 1.6 refuses results of a newer version.
const CNI_VERSION: &str = "1.0.0";

/// A network for pods, as an administrator thinks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// The network's name; also the folder of its addresses.
    pub name: String,
    /// The (first) bridge.
    pub bridge: String,
    /// How many bridges share the subnets; 1 serves up to about 500 pods.
    pub bridges: usize,
    /// Addresses of pods: each pod gets one of each subnet.
    pub subnets: Vec<IpNet>,
    /// MTU of the pods' interfaces; the kernel's default if `None`.
    pub mtu: Option<u32>,
    /// Where addresses are written down, one folder per network.
    pub data_dir: PathBuf,
    /// Where the shim asks.
    pub socket: PathBuf,
}

impl PodNetwork {
    /// The plugin's conf as it comes to the plugin: for [`crate::options::NetworkOptions::conf`].
    pub fn plugin_conf(&self) -> Vec<u8> {
        let mut plugin = self.plugin();
        plugin["cniVersion"] = CNI_VERSION.into();
        plugin["name"] = self.name.clone().into();
        plugin.to_string().into_bytes()
    }

    /// The list with the one plugin, as it is in containerd's folder.
    pub fn conflist(&self) -> Value {
        json!({ "cniVersion": CNI_VERSION, "name": self.name, "plugins": [self.plugin()] })
    }

    /// One for each family that pods have.
    fn default_routes(&self) -> Vec<Value> {
        let has = |v4: bool| self.subnets.iter().any(|one| one.addr().is_ipv4() == v4);
        let defaults = [(true, "0.0.0.0/0"), (false, "::/0")].into_iter();
        let wanted = defaults.filter(|(v4, _)| has(*v4));
        wanted.map(|(_, dst)| json!({ "dst": dst })).collect()
    }

    fn plugin(&self) -> Value {
        let ranges = self
            .subnets
            .iter()
            .map(|subnet| json!([{ "subnet": subnet }]));
        let mut plugin = json!({
            "type": "swiftlet-cni",
            "bridge": self.bridge,
            "isGateway": true,
            "ipMasq": true,
            "hairpinMode": true,
            "capabilities": { "portMappings": true, "bandwidth": true },
            "socket": self.socket,
            "ipam": {
                "type": "host-local",
                "ranges": ranges.collect::<Vec<_>>(),
                "routes": self.default_routes(),
                "dataDir": self.data_dir,
            },
        });
        if self.bridges > 1 {
            plugin["bridges"] = self.bridges.into();
        }
        if let Some(mtu) = self.mtu {
            plugin["mtu"] = mtu.into();
        }
        plugin
    }
}

/// Writes the conf into containerd's folder and returns the file.
///
/// The file is renamed within the folder: containerd watches it, and does not see a file that is
/// moved in from elsewhere.
pub fn write_conf(dir: &Path, network: &PodNetwork) -> io::Result<PathBuf> {
    disk::create_dir_all(dir)?;
    let path = dir.join(FILE_NAME);
    // containerd reads .conf, .conflist and .json; this name has none of these ends.
    let new = dir.join(format!("{FILE_NAME}.new"));
    disk::write(&new, format!("{:#}\n", network.conflist()))?;
    disk::rename(&new, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::NetworkConf;

    fn network(bridges: usize) -> PodNetwork {
        PodNetwork {
            name: "swiftlet".into(),
            bridge: "swiftlet0".into(),
            bridges,
            subnets: vec!["10.88.0.0/16".parse().unwrap()],
            mtu: Some(1450),
            data_dir: "/run/swiftlet/ipam".into(),
            socket: "/run/swiftlet/cni.sock".into(),
        }
    }

    #[test]
    fn what_is_written_is_what_the_node_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = write_conf(dir.path(), &network(2)).unwrap();
        let written: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(written, network(2).conflist());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let conf = NetworkConf::parse(&network(2).plugin_conf()).unwrap();
        assert_eq!(conf.bridges, ["swiftlet0", "swiftlet1"]);
        assert_eq!(conf.mtu, Some(1450));
    }

    #[test]
    fn a_pod_of_both_families_has_an_address_and_a_default_route_of_each() {
        let both = PodNetwork {
            subnets: vec![
                "10.88.0.0/16".parse().unwrap(),
                "fd00:88::/64".parse().unwrap(),
            ],
            ..network(2)
        };
        let conf = NetworkConf::parse(&both.plugin_conf()).unwrap();
        assert_eq!(conf.range_sets.len(), 2);
        assert!(conf.range_sets.iter().all(|sets| sets.len() == 2));
        let destinations = |conf: &NetworkConf| -> Vec<_> {
            let routes = conf.routes.iter();
            routes.map(|hop| hop.destination.to_string()).collect()
        };
        assert_eq!(destinations(&conf), ["0.0.0.0/0", "::/0"]);
        let six = PodNetwork {
            subnets: vec!["fd00:88::/64".parse().unwrap()],
            ..network(1)
        };
        let conf = NetworkConf::parse(&six.plugin_conf()).unwrap();
        assert_eq!(destinations(&conf), ["::/0"]);
    }
}
