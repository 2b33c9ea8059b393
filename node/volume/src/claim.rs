//! What a claim is bound to. Pure.

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use swiftlet_model::volumes::VolumeError;
use swiftlet_proto::selector::selects_node;

use crate::failed;

/// Where a persistent volume lies on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path of the node, which nobody's group takes over.
    HostPath { path: String, kind: String },
    /// A disk of the node, which the pod's group owns.
    Local { path: String },
}

/// The volume of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claimed {
    /// Where it lies on each of its nodes.
    pub(crate) place: Place,
    /// Which nodes have it; `None`: all.
    pub(crate) node_affinity: Option<NodeSelector>,
}

/// A claim that has its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The volume's name.
    pub(crate) volume: String,
    /// The claim's uid.
    pub(crate) uid: String,
}

/// The volume that the claim is bound to.
pub(crate) fn bound(volume: &str, name: &str, object: &[u8]) -> Result<Bound, VolumeError> {
    let claim: PersistentVolumeClaim = read(volume, "persistentvolumeclaim", object)?;
    if claim.metadata.deletion_timestamp.is_some() {
        let cause = format!("can't start pod because PVC {name} is being deleted");
        return Err(failed(volume, &cause));
    }
    let phase = claim.status.and_then(|status| status.phase);
    let spec = claim.spec.unwrap_or_default();
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(unsupported(volume, "block"));
    }
    match spec.volume_name.filter(|it| !it.is_empty()) {
        Some(bound) if phase.as_deref() == Some("Bound") => Ok(Bound {
            volume: bound,
            uid: claim.metadata.uid.unwrap_or_default(),
        }),
        _ => Err(VolumeError::NotBound {
            volume: volume.to_owned(),
            claim: name.to_owned(),
        }),
    }
}

/// Where the volume lies. Until it says itself whose it is, it may be another's.
pub(crate) fn place(volume: &str, bound: &Bound, object: &[u8]) -> Result<Claimed, VolumeError> {
    let persistent: PersistentVolume = read(volume, "persistentvolume", object)?;
    let spec = persistent.spec.unwrap_or_default();
    let owner = spec.claim_ref.as_ref().and_then(|it| it.uid.as_deref());
    if owner != Some(bound.uid.as_str()) {
        let whose = owner.map_or("not bound to the claim yet", |_| "bound to another claim");
        let cause = format!("PersistentVolume {} is {whose}", bound.volume);
        return Err(failed(volume, &cause));
    }
    let place = match (&spec.host_path, &spec.local) {
        (Some(host), _) => Place::HostPath {
            path: host.path.clone(),
            kind: host.type_.clone().unwrap_or_default(),
        },
        (None, Some(local)) => Place::Local {
            path: local.path.clone(),
        },
        (None, None) => return Err(unsupported(volume, &kind_of(&spec))),
    };
    Ok(Claimed {
        place,
        node_affinity: spec.node_affinity.and_then(|it| it.required),
    })
}

/// The node's object.
pub(crate) fn node(volume: &str, object: &[u8]) -> Result<Node, VolumeError> {
    read(volume, "node", object)
}

/// A path of one node is another's data, or nobody's, on every other node. In Kubernetes' words
/// (`CheckNodeAffinity` in `pkg/volume/util`).
pub(crate) fn check_node(
    volume: &str,
    selector: &NodeSelector,
    node: &Node,
) -> Result<(), VolumeError> {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    if selects_node(selector, &labels, name) {
        return Ok(());
    }
    Err(VolumeError::NodeAffinity {
        volume: volume.to_owned(),
    })
}

/// The one field of a spec that no other kind of volume has.
fn kind_of(spec: &PersistentVolumeSpec) -> String {
    const OTHERS: [&str; 8] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
    ];
    let value = serde_json::to_value(spec).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    let mut kinds = fields.map(|(field, _)| field.as_str());
    kinds
        .find(|it| !OTHERS.contains(it) && *it != "volumeAttributesClassName")
        .unwrap_or("such")
        .to_owned()
}

fn unsupported(volume: &str, kind: &str) -> VolumeError {
    VolumeError::Unsupported {
        volume: volume.to_owned(),
        kind: kind.to_owned(),
    }
}

fn read<T: serde::de::DeserializeOwned>(
    volume: &str,
    what: &str,
    object: &[u8],
) -> Result<T, VolumeError> {
    serde_json::from_slice(object).map_err(|error| failed(volume, &format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(value: &Value) -> Result<Bound, VolumeError> {
        bound("data", "mine", value.to_string().as_bytes())
    }

    fn volume(spec: &Value) -> Result<Claimed, VolumeError> {
        let bound = Bound {
            volume: "pv".into(),
            uid: "7".into(),
        };
        place("data", &bound, json!({"spec": spec}).to_string().as_bytes())
    }

    #[test]
    fn a_claim_is_waited_for_until_it_is_bound() {
        let pending = json!({"spec": {}, "status": {"phase": "Pending"}});
        let error = claim(&pending).unwrap_err().to_string();
        let words = "MountVolume.SetUp failed for volume \"data\" : \
                     PersistentVolumeClaim is not bound: \"mine\"";
        assert_eq!(error, words);
        let ready = json!({"metadata": {"uid": "7"}, "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound"}});
        assert_eq!(claim(&ready).unwrap().volume, "pv");
        let block = json!({"spec": {"volumeName": "pv", "volumeMode": "Block"},
            "status": {"phase": "Bound"}});
        assert!(claim(&block).is_err());
    }

    #[test]
    fn only_paths_of_the_node_are_served_and_only_to_their_claim() {
        let local = json!({"local": {"path": "/disk"}, "claimRef": {"uid": "7"},
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        assert_eq!(
            volume(&local).unwrap().place,
            Place::Local {
                path: "/disk".into()
            }
        );
        let host = json!({"hostPath": {"path": "/x", "type": "Directory"},
            "claimRef": {"uid": "7"}});
        let place = volume(&host).unwrap().place;
        assert!(matches!(place, Place::HostPath { .. }));
        let nobodys = json!({"local": {"path": "/disk"}});
        assert!(volume(&nobodys).is_err());
        let other = json!({"local": {"path": "/disk"}, "claimRef": {"uid": "8"}});
        assert!(volume(&other).is_err());
        let csi = json!({"csi": {"driver": "x", "volumeHandle": "y"}, "accessModes": ["x"],
            "claimRef": {"uid": "7"}});
        let words = "volume \"data\": csi volumes are not served by this node";
        assert_eq!(volume(&csi).unwrap_err().to_string(), words);
    }
}
