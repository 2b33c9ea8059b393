//! Which volume a claim gets, as the scheduler foresees it and the controller binds it
//! (Kubernetes: `pkg/controller/volume/persistentvolume/index.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::quantity::Quantity;
use crate::selector::{LabelSelector, selects_node};

/// `volumeMode` where it is left out.
const MODE_DEFAULT: &str = "Filesystem";

/// Says that no user chose the volume.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// A node, as far as volumes can tell nodes apart.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// The smallest volume that meets the claim; one that was made for it comes first. `node`: where
/// the volume must be reachable, if that is known.
pub fn select<'a>(
    volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    claim: &PersistentVolumeClaim,
    node: Option<Place<'_>>,
) -> Option<&'a Arc<PersistentVolume>> {
    volumes
        .filter(|volume| meets(volume, claim) && node.is_none_or(|node| reaches(volume, node)))
        .min_by_key(|volume| rank(volume, claim))
}

/// All volumes that meet the claim, in the order in which [`select`] would choose them.
pub fn matching<'a>(
    volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    claim: &PersistentVolumeClaim,
) -> Vec<&'a Arc<PersistentVolume>> {
    let mut all: Vec<_> = volumes.filter(|volume| meets(volume, claim)).collect();
    all.sort_by_cached_key(|volume| rank(volume, claim));
    all
}

/// Lower ones are chosen first.
fn rank(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> (bool, i64, Option<String>) {
    let unreserved = !is_for(volume, claim);
    (unreserved, size(volume), volume.metadata.name.clone())
}

/// Writes into the volume for whom it is, and whether a user said so before.
pub fn reserve_for(volume: &mut PersistentVolume, claim: &PersistentVolumeClaim) {
    let spec = volume.spec.get_or_insert_default();
    let reference = ObjectReference {
        kind: Some("PersistentVolumeClaim".to_owned()),
        api_version: Some("v1".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    };
    let by_user = spec.claim_ref.replace(reference).is_some();
    if !by_user {
        let annotations = volume.metadata.annotations.get_or_insert_default();
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
}

/// The volume that stands reserved for exactly this claim, if there is one: it gets no other.
pub fn held<'a>(
    mut volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    claim: &PersistentVolumeClaim,
) -> Option<&'a Arc<PersistentVolume>> {
    volumes.find(|volume| is_held_for(volume, claim))
}

/// Whether the volume stands reserved for exactly this claim, by its uid.
pub fn is_held_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let holder = reference.and_then(|reference| reference.uid.as_deref());
    !uid.is_empty() && holder == Some(uid)
}

/// How much the claim asks for, in bytes.
pub fn wanted_size(claim: &PersistentVolumeClaim) -> i64 {
    amount(requested(claim))
}

/// Whether the volume is reserved for this claim: by name, and by uid once it is bound.
pub fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.namespace == claim.metadata.namespace
            && reference.name == claim.metadata.name
            && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// Whether the claim may have the volume. The cheap questions come first: each claim asks each
/// volume.
pub fn meets(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reserved = is_for(volume, claim);
    if !(reserved || is_free(volume)) || mismatch(volume, claim).is_some() {
        return false;
    }
    let wanted = claim.spec.as_ref();
    // A claim without a selector takes any volume.
    let Some(selector) = wanted.and_then(|wanted| wanted.selector.as_ref()) else {
        return true;
    };
    let labels = volume.metadata.labels.clone().unwrap_or_default();
    reserved
        || LabelSelector::from_object(Some(selector))
            .is_ok_and(|selector| selector.matches(&labels))
}

/// Whether nobody has the volume, and nobody had it.
fn is_free(volume: &PersistentVolume) -> bool {
    let is_claimed = volume
        .spec
        .as_ref()
        .is_none_or(|spec| spec.claim_ref.is_some());
    !is_claimed && phase(volume) != "Failed"
}

/// Why the claim cannot have the volume, whoever has it now (Kubernetes:
/// `checkVolumeSatisfyClaim`).
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let (Some(spec), Some(wanted)) = (&volume.spec, &claim.spec) else {
        return Some("it says nothing");
    };
    let class = spec.storage_class_name.as_deref().unwrap_or_default();
    let wanted_class = wanted.storage_class_name.as_deref().unwrap_or_default();
    let mode = spec.volume_mode.as_deref().unwrap_or(MODE_DEFAULT);
    let wanted_mode = wanted.volume_mode.as_deref().unwrap_or(MODE_DEFAULT);
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let mut wanted_modes = wanted.access_modes.iter().flatten();
    if volume.metadata.deletion_timestamp.is_some() {
        Some("the volume is marked for deletion")
    } else if class != wanted_class {
        Some("storageClassName does not match")
    } else if mode != wanted_mode {
        Some("incompatible volumeMode")
    } else if !wanted_modes.all(|mode| modes.contains(mode)) {
        Some("incompatible accessMode")
    } else if size(volume) < wanted_size(claim) {
        Some("requested PV is too small")
    } else {
        None
    }
}

fn phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn size(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    amount(capacity.and_then(|capacity| capacity.get("storage")))
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&ApiQuantity> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    resources.requests.as_ref()?.get("storage")
}

fn amount(quantity: Option<&ApiQuantity>) -> i64 {
    quantity
        .and_then(|quantity| Quantity::try_from(quantity).ok())
        .map_or(0, Quantity::value)
}

/// Whether a node can use the volume.
pub fn reaches(volume: &PersistentVolume, node: Place<'_>) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return true;
    };
    let none = BTreeMap::new();
    selects_node(required, node.labels.unwrap_or(&none), node.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, more: &Value) -> Arc<PersistentVolume> {
        let mut spec = json!({
            "capacity": { "storage": size },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
        });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let volume =
            json!({ "metadata": { "name": name, "labels": { "tier": name } }, "spec": spec });
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(more: &Value) -> PersistentVolumeClaim {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "resources": { "requests": { "storage": "2Gi" } },
        });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let metadata = json!({ "name": "c", "namespace": "default", "uid": "u" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn chosen(volumes: &[Arc<PersistentVolume>], more: &Value) -> Option<String> {
        let found = select(volumes.iter(), &claim(more), None);
        found.and_then(|volume| volume.metadata.name.clone())
    }

    #[test]
    fn the_smallest_volume_that_meets_all_wishes_is_chosen() {
        let other = json!({ "claimRef": { "namespace": "default", "name": "other", "uid": "x" } });
        let volumes = [
            volume("small", "1Gi", &json!({})),
            volume("large", "8Gi", &json!({})),
            volume("right", "2Gi", &json!({})),
            volume("taken", "2Gi", &other),
            volume("block", "2Gi", &json!({ "volumeMode": "Block" })),
            volume("fast", "2Gi", &json!({ "storageClassName": "fast" })),
        ];
        assert_eq!(chosen(&volumes, &json!({})).as_deref(), Some("right"));
        let labelled = json!({ "selector": { "matchLabels": { "tier": "large" } } });
        assert_eq!(chosen(&volumes, &labelled).as_deref(), Some("large"));
        let shared = json!({ "accessModes": ["ReadWriteMany"] });
        assert_eq!(chosen(&volumes, &shared), None);
        let fast = json!({ "storageClassName": "fast" });
        assert_eq!(chosen(&volumes, &fast).as_deref(), Some("fast"));
    }

    #[test]
    fn a_volume_that_was_made_for_the_claim_comes_before_a_smaller_one() {
        let ours = json!({ "claimRef": { "namespace": "default", "name": "c" } });
        let volumes = [
            volume("right", "2Gi", &json!({})),
            volume("ours", "8Gi", &ours),
        ];
        assert_eq!(chosen(&volumes, &json!({})).as_deref(), Some("ours"));
    }

    #[test]
    fn a_volume_of_one_node_is_not_given_to_a_pod_on_another() {
        let rule = json!({ "key": "host", "operator": "In", "values": ["n1"] });
        let affinity = json!({ "nodeAffinity": { "required": {
            "nodeSelectorTerms": [{ "matchExpressions": [rule] }],
        } } });
        let volumes = [volume("local", "2Gi", &affinity)];
        let host = |name: &str| BTreeMap::from([("host".to_owned(), name.to_owned())]);
        let found = |name: &str| {
            let labels = host(name);
            let node = Place {
                name,
                labels: Some(&labels),
            };
            select(volumes.iter(), &claim(&json!({})), Some(node)).is_some()
        };
        assert!(found("n1"));
        assert!(!found("n2"));
    }

    #[test]
    fn a_volume_is_held_for_a_claim_by_its_uid_alone() {
        let by =
            |uid: &str| json!({ "claimRef": { "namespace": "default", "name": "c", "uid": uid } });
        let volumes = [volume("v", "2Gi", &by("u"))];
        assert!(held(volumes.iter(), &claim(&json!({}))).is_some());
        let volumes = [volume("v", "2Gi", &by("")), volume("w", "2Gi", &by("x"))];
        assert!(held(volumes.iter(), &claim(&json!({}))).is_none());
    }
}
