//! Which claims are asked again when a volume changes. Which volume a claim gets the scheduler
//! foresees by the same rules: `proto/src/claim.rs`.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use swiftlet_client::Object;
use swiftlet_proto::claim::Place;
pub(super) use swiftlet_proto::claim::{held, is_for, meets, mismatch, select};

/// A node as volumes see it.
pub(super) fn place(node: &Node) -> Place<'_> {
    Place {
        name: node.name(),
        labels: node.metadata.labels.as_ref(),
    }
}

fn phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(name: &str, size: &str, more: &Value) -> PersistentVolume {
        let mut spec = json!({ "capacity": { "storage": size } });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
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
}
