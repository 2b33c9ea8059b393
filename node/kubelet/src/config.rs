//! The sources of pods, merged into one stream of updates. Today there is one source, the control
//! plane; static files and HTTP will be others.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::ControlPlaneEvent;
use swiftlet_model::ids::PodKey;

use crate::pod_manager::PodManager;

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The API.
    ControlPlane,
}

/// What became of a desired pod.
#[derive(Clone, Debug)]
pub enum PodUpdate {
    /// It was not known before.
    Add(Arc<Pod>),
    /// Its spec or metadata changed.
    Update(Arc<Pod>),
    /// Its status alone changed: someone else wrote it, or we did.
    Reconcile(Arc<Pod>),
    /// It shall end, with its grace period.
    Delete(Arc<Pod>),
    /// Its object is gone.
    Remove(PodKey),
}

/// Compares what sources say with what is known.
#[derive(Debug, Default)]
pub struct PodConfig {
    synced: BTreeSet<Source>,
}

impl PodConfig {
    /// Whether every source has listed its pods: before that nothing may be called an orphan.
    pub fn is_synced(&self) -> bool {
        self.synced.contains(&Source::ControlPlane)
    }

    /// Turns a message of the control plane into updates, and keeps `pods` up to date.
    pub fn take(&mut self, event: ControlPlaneEvent, pods: &mut PodManager) -> Vec<PodUpdate> {
        match event {
            ControlPlaneEvent::Pods(all) => {
                self.synced.insert(Source::ControlPlane);
                replace(all, pods)
            }
            ControlPlaneEvent::PodUpsert(pod) => upsert(pod, pods).into_iter().collect(),
            ControlPlaneEvent::PodRemoved(key) => pods
                .remove(&key.uid)
                .map(|_| PodUpdate::Remove(key))
                .into_iter()
                .collect(),
            ControlPlaneEvent::Referenced(_) | ControlPlaneEvent::Disconnected => Vec::new(),
        }
    }
}

/// A full list: what is not in it does not exist.
fn replace(all: Vec<Arc<Pod>>, pods: &mut PodManager) -> Vec<PodUpdate> {
    let listed: HashSet<_> = all.iter().map(|pod| PodKey::of(pod).uid).collect();
    let gone = pods.snapshot().into_iter().map(|pod| PodKey::of(&pod));
    let gone: Vec<PodKey> = gone.filter(|key| !listed.contains(&key.uid)).collect();
    let mut updates = Vec::new();
    for key in gone {
        pods.remove(&key.uid);
        updates.push(PodUpdate::Remove(key));
    }
    updates.extend(all.into_iter().filter_map(|pod| upsert(pod, pods)));
    updates
}

fn upsert(pod: Arc<Pod>, pods: &mut PodManager) -> Option<PodUpdate> {
    let before = pods.put(Arc::clone(&pod));
    let Some(before) = before else {
        return Some(PodUpdate::Add(pod));
    };
    if pod.metadata.deletion_timestamp.is_some() && before.metadata != pod.metadata {
        return Some(PodUpdate::Delete(pod));
    }
    let same_spec = before.spec == pod.spec && same_metadata(&before, &pod);
    match (same_spec, before.status == pod.status) {
        (true, true) => None,
        (true, false) => Some(PodUpdate::Reconcile(pod)),
        (false, _) => Some(PodUpdate::Update(pod)),
    }
}

/// Fields of the metadata that change with every write do not count.
fn same_metadata(before: &Pod, pod: &Pod) -> bool {
    let (before, pod) = (&before.metadata, &pod.metadata);
    before.labels == pod.labels
        && before.annotations == pod.annotations
        && before.deletion_timestamp == pod.deletion_timestamp
        && before.generation == pod.generation
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn pod(uid: &str, generation: i64) -> Arc<Pod> {
        let metadata = ObjectMeta {
            name: Some(uid.to_owned()),
            uid: Some(uid.to_owned()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        Arc::new(Pod {
            metadata,
            ..Pod::default()
        })
    }

    #[test]
    fn a_full_list_removes_what_it_does_not_name_and_repeats_nothing() {
        let (mut config, mut pods) = (PodConfig::default(), PodManager::default());
        assert!(!config.is_synced());
        let first = ControlPlaneEvent::Pods(vec![pod("a", 1), pod("b", 1)]);
        let updates = config.take(first, &mut pods);
        assert!(matches!(
            updates.as_slice(),
            [PodUpdate::Add(_), PodUpdate::Add(_)]
        ));
        assert!(config.is_synced());
        let second = ControlPlaneEvent::Pods(vec![pod("b", 1), pod("c", 1)]);
        let updates = config.take(second, &mut pods);
        assert!(
            matches!(updates.as_slice(), [PodUpdate::Remove(key), PodUpdate::Add(_)]
            if key.uid.as_str() == "a")
        );
        let again = config.take(ControlPlaneEvent::PodUpsert(pod("c", 1)), &mut pods);
        assert!(again.is_empty());
        let newer = config.take(ControlPlaneEvent::PodUpsert(pod("c", 2)), &mut pods);
        assert!(matches!(newer.as_slice(), [PodUpdate::Update(_)]));
    }
}
