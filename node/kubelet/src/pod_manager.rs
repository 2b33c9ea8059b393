//! The desired pods, by uid, and the mirror pods that show some of them in the API. The sync loop
//! owns it; others get snapshots.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::sources::Source;

/// A pod as people name it: namespace and name.
pub type FullName = (String, String);

/// The name of a pod.
pub fn full_name(pod: &Pod) -> FullName {
    let meta = &pod.metadata;
    let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
    (namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[derive(Debug)]
struct Desired {
    source: Source,
    pod: Arc<Pod>,
}

/// The desired pods.
#[derive(Debug, Default)]
pub struct PodManager {
    pods: HashMap<PodUid, Desired>,
    mirrors: HashMap<FullName, Arc<Pod>>,
    static_changes: u64,
}

impl PodManager {
    /// Keeps the newest object of a pod; answers the one before.
    pub fn put(&mut self, source: Source, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        self.static_changes += u64::from(source != Source::ControlPlane);
        let before = self
            .pods
            .insert(PodKey::of(&pod).uid, Desired { source, pod });
        before.map(|before| before.pod)
    }

    /// Forgets a pod.
    pub fn remove(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        let removed = self.pods.remove(uid)?;
        self.static_changes += u64::from(removed.source != Source::ControlPlane);
        Some(removed.pod)
    }

    /// The newest object of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|desired| &desired.pod)
    }

    /// All desired pods, oldest first, so that they are admitted in the order of their creation.
    /// Static pods have no such time and come first.
    pub fn snapshot(&self) -> Vec<Arc<Pod>> {
        in_order(self.pods.values())
    }

    /// The pods of one source, in the same order.
    pub fn of_source(&self, source: Source) -> Vec<Arc<Pod>> {
        in_order(self.pods.values().filter(|one| one.source == source))
    }

    /// The pods that come from no API.
    pub fn statics(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let statics = |one: &&Desired| one.source != Source::ControlPlane;
        self.pods.values().filter(statics).map(|one| &one.pod)
    }

    /// Grows with every change of a static pod or a mirror pod.
    pub fn static_changes(&self) -> u64 {
        self.static_changes
    }

    /// Keeps the newest object of a mirror pod; answers the one before.
    pub fn put_mirror(&mut self, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        self.static_changes += 1;
        self.mirrors.insert(full_name(&pod), pod)
    }

    /// Forgets a mirror pod.
    pub fn remove_mirror(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let name = (key.namespace.clone(), key.name.clone());
        let known = self.mirrors.get(&name);
        let same = known.is_some_and(|mirror| PodKey::of(mirror).uid == key.uid);
        self.static_changes += u64::from(same);
        same.then(|| self.mirrors.remove(&name)).flatten()
    }

    /// The mirror pod of a static pod.
    pub fn mirror(&self, name: &FullName) -> Option<&Arc<Pod>> {
        self.mirrors.get(name)
    }

    /// All mirror pods.
    pub fn mirrors(&self) -> &HashMap<FullName, Arc<Pod>> {
        &self.mirrors
    }
}

fn in_order<'a>(pods: impl Iterator<Item = &'a Desired>) -> Vec<Arc<Pod>> {
    let mut all: Vec<_> = pods.map(|desired| Arc::clone(&desired.pod)).collect();
    all.sort_by_key(|pod| {
        let meta = &pod.metadata;
        (meta.creation_timestamp.clone(), meta.uid.clone())
    });
    all
}
