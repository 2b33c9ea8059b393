//! What a pod's volumes mean for the pod: which objects they name, what they show of the pod
//! itself, which of them nobody may write. Pure.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod, Volume, VolumeProjection};
use swiftlet_model::control_plane::{ObjectRef, RefKind};

/// The objects that the pod's volumes name. What a claim is bound to is not known here.
pub(crate) fn references(pod: &Pod) -> Vec<ObjectRef> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut all = Vec::new();
    let mut name = |kind, name: &str| {
        all.push(ObjectRef {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    };
    for volume in of(pod) {
        if let Some(map) = &volume.config_map {
            name(RefKind::ConfigMap, &map.name);
        }
        let secret = volume.secret.as_ref();
        if let Some(secret) = secret.and_then(|one| one.secret_name.as_deref()) {
            name(RefKind::Secret, secret);
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            name(RefKind::PersistentVolumeClaim, &claim.claim_name);
        }
        for source in projections(volume) {
            if let Some(map) = &source.config_map {
                name(RefKind::ConfigMap, &map.name);
            }
            if let Some(secret) = &source.secret {
                name(RefKind::Secret, &secret.name);
            }
        }
    }
    all
}

/// Whether a volume shows something of the pod that is different now.
pub(crate) fn shows_change(before: &Pod, after: &Pod) -> bool {
    let (old, new) = (&before.metadata, &after.metadata);
    let is_same = old.labels == new.labels
        && old.annotations == new.annotations
        && (std::ptr::eq(before, after) || before.spec == after.spec);
    !is_same && of(after).any(|volume| downward_items(volume).next().is_some())
}

/// Whether the volume is mounted read-only whatever a container says: the node writes its files,
/// or the claim says so (`GetAttributes` of the plugins in `pkg/volume`).
pub(crate) fn is_read_only(pod: &Pod, name: &str) -> bool {
    let mut all = of(pod).filter(|volume| volume.name == name);
    all.next().is_some_and(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.downward_api.is_some()
            || volume.projected.is_some()
            || claim.is_some_and(|claim| claim.read_only.unwrap_or_default())
    })
}

fn of(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.volumes.iter().flatten())
}

fn projections(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    let projected = volume.projected.iter();
    projected.flat_map(|one| one.sources.iter().flatten())
}

fn downward_items(volume: &Volume) -> impl Iterator<Item = &DownwardAPIVolumeFile> {
    let own = volume.downward_api.iter();
    let own = own.flat_map(|one| one.items.iter().flatten());
    let projected = projections(volume).filter_map(|one| one.downward_api.as_ref());
    own.chain(projected.flat_map(|one| one.items.iter().flatten()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let volumes = json!([
            {"name": "a", "configMap": {"name": "cm"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "mine", "readOnly": true}},
            {"name": "c", "emptyDir": {}},
            {"name": "d", "projected": {"sources": [
                {"secret": {"name": "s"}},
                {"downwardAPI": {"items": [
                    {"path": "x", "fieldRef": {"fieldPath": "metadata.labels"}},
                ]}},
            ]}},
        ]);
        let pod = json!({"metadata": {"namespace": "default"},
            "spec": {"containers": [], "volumes": volumes}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn every_object_that_a_volume_names_is_found() {
        let found = references(&pod());
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.kind, one.name.as_str()))
            .collect();
        let expected = [
            (RefKind::ConfigMap, "cm"),
            (RefKind::PersistentVolumeClaim, "mine"),
            (RefKind::Secret, "s"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_change_counts_where_a_volume_shows_it() {
        let (before, mut after) = (pod(), pod());
        assert!(!shows_change(&before, &after));
        after.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert!(shows_change(&before, &after));
        after.spec.as_mut().unwrap().volumes.as_mut().unwrap().pop();
        assert!(!shows_change(&before, &after));
    }

    #[test]
    fn what_the_node_writes_is_read_only() {
        let read_only = |name: &&str| is_read_only(&pod(), name);
        assert!(["a", "b", "d"].iter().all(read_only));
        assert!(!["c", "none"].iter().any(|name| is_read_only(&pod(), name)));
    }
}
