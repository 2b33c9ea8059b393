//! The desired pods, by uid. The sync loop owns it; others get snapshots.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::{PodKey, PodUid};

/// The desired pods.
#[derive(Debug, Default)]
pub struct PodManager {
    pods: HashMap<PodUid, Arc<Pod>>,
}

impl PodManager {
    /// Keeps the newest object of a pod; answers the one before.
    pub fn put(&mut self, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        self.pods.insert(PodKey::of(&pod).uid, pod)
    }

    /// Forgets a pod.
    pub fn remove(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.remove(uid)
    }

    /// The newest object of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid)
    }

    /// All desired pods, oldest first, so that they are admitted in the order of their creation.
    pub fn snapshot(&self) -> Vec<Arc<Pod>> {
        let mut all: Vec<_> = self.pods.values().map(Arc::clone).collect();
        all.sort_by_key(|pod| {
            let meta = &pod.metadata;
            (meta.creation_timestamp.clone(), meta.uid.clone())
        });
        all
    }
}
