//! Which volume a claim gets: pure (Kubernetes: `pkg/controller/volume/persistentvolume/index.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_client::Object;
use swiftlet_proto::quantity::Quantity;
use swiftlet_proto::selector::{LabelSelector, selects_node};

/// `volumeMode` where it is left out.
const MODE_DEFAULT: &str = "Filesystem";

/// The smallest volume that meets the claim; one that was made for it comes first. `node`: where
/// the volume must be reachable, if that is known.
pub(super) fn select<'a>(
    volumes: impl Iterator<Item = &'a Arc<PersistentVolume>>,
    claim: &PersistentVolumeClaim,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    volumes
        .filter(|volume| meets(volume, claim) && node.is_none_or(|node| reaches(volume, node)))
        .min_by_key(|volume| {
            let unreserved = !is_for(volume, claim);
            (unreserved, size(volume), volume.name().to_owned())
        })
}

/// Whether the volume is reserved for this claim: by name, and by uid once it is bound.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        let uid = reference.uid.as_deref().unwrap_or_default();
        reference.namespace.as_deref() == Some(claim.namespace())
            && reference.name.as_deref() == Some(claim.name())
            && (uid.is_empty() || uid == claim.uid())
    })
}

/// Whether the claim may have the volume. The cheap questions come first: each claim asks each
/// volume.
pub(super) fn meets(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
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

/// Whether a claim may take the volume now that could not before: of a new one, and of one that
/// became free or changed.
pub(super) fn is_news(old: Option<&PersistentVolume>, volume: &PersistentVolume) -> bool {
    let reference = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.clone();
    let is_held = |volume: &PersistentVolume| {
        let uid = reference(volume).and_then(|reference| reference.uid);
        phase(volume) == "Failed" || uid.is_some_and(|uid| !uid.is_empty())
    };
    !volume.is_terminating()
        && !is_held(volume)
        && old.is_none_or(|old| {
            is_held(old) || old.spec != volume.spec || old.metadata.labels != volume.metadata.labels
        })
}

/// Why the claim cannot have the volume, whoever has it now (Kubernetes:
/// `checkVolumeSatisfyClaim`).
pub(super) fn mismatch(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Option<&'static str> {
    let (Some(spec), Some(wanted)) = (&volume.spec, &claim.spec) else {
        return Some("it says nothing");
    };
    let class = spec.storage_class_name.as_deref().unwrap_or_default();
    let wanted_class = wanted.storage_class_name.as_deref().unwrap_or_default();
    let mode = spec.volume_mode.as_deref().unwrap_or(MODE_DEFAULT);
    let wanted_mode = wanted.volume_mode.as_deref().unwrap_or(MODE_DEFAULT);
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let mut wanted_modes = wanted.access_modes.iter().flatten();
    if volume.is_terminating() {
        Some("the volume is marked for deletion")
    } else if class != wanted_class {
        Some("storageClassName does not match")
    } else if mode != wanted_mode {
        Some("incompatible volumeMode")
    } else if !wanted_modes.all(|mode| modes.contains(mode)) {
        Some("incompatible accessMode")
    } else if size(volume) < amount(requested(claim)) {
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
fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return true;
    };
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    selects_node(required, labels, node.name())
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
        found.map(|volume| volume.name().to_owned())
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
    fn claims_are_asked_again_for_a_volume_that_became_free_or_changed_and_not_for_a_taken_one() {
        let free = volume("v", "2Gi", &json!({}));
        let larger = volume("v", "4Gi", &json!({}));
        let holder = json!({ "claimRef": { "namespace": "default", "name": "o", "uid": "x" } });
        let taken = volume("v", "2Gi", &holder);
        assert!(is_news(None, &free));
        assert!(is_news(Some(&taken), &free));
        assert!(is_news(Some(&free), &larger));
        assert!(!is_news(Some(&free), &free));
        assert!(!is_news(Some(&free), &taken));
        assert!(!is_news(None, &taken));
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
        let node = |name: &str| -> Node {
            let metadata = json!({ "name": name, "labels": { "host": name } });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let claim = claim(&json!({}));
        assert!(select(volumes.iter(), &claim, Some(&node("n1"))).is_some());
        assert!(select(volumes.iter(), &claim, Some(&node("n2"))).is_none());
    }
}
