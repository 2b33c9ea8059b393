//! The pods of the node with their newest statuses: the kubelet writes them down, the node's
//! server reads them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::ids::{PodKey, PodUid};

/// One pod.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Its key.
    pub key: PodKey,
    /// Its object as it was sent here.
    pub pod: Arc<Pod>,
    /// Its status as last made here.
    pub status: Arc<PodStatus>,
}

/// All pods that have a worker. A mutex rather than a task: a worker writes a pointer in the midst
/// of a pass and cannot wait, and nobody holds the lock for longer than a look-up or a copy of
/// pointers takes.
#[derive(Debug, Default)]
pub struct PodBoard {
    pods: Mutex<HashMap<PodUid, Posted>>,
}

impl PodBoard {
    /// All pods, in the order of namespace and name.
    pub fn all(&self) -> Vec<Posted> {
        let mut all: Vec<_> = self.locked(|pods| pods.values().cloned().collect());
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// The pod of that name; the newest where an older one of the name is still ending.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Posted> {
        self.locked(|pods| {
            let mut best: Option<&Posted> = None;
            for one in pods.values() {
                let is_named = one.key.name == name && one.key.namespace == namespace;
                let is_newer = best.is_none_or(|best| created(&best.pod) < created(&one.pod));
                if is_named && is_newer {
                    best = Some(one);
                }
            }
            best.cloned()
        })
    }

    fn locked<T>(&self, look: impl FnOnce(&mut HashMap<PodUid, Posted>) -> T) -> T {
        // Nothing panics while it is held.
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        look(&mut pods)
    }
}

fn created(pod: &Pod) -> Option<jiff::Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// One worker's place on the board, which is empty again when the worker is gone.
#[derive(Debug)]
pub struct Place {
    board: Arc<PodBoard>,
    key: PodKey,
    posted: Option<(Arc<Pod>, Arc<PodStatus>)>,
}

impl Place {
    /// A place for a pod; nothing is shown yet.
    pub fn new(board: Arc<PodBoard>, key: PodKey) -> Self {
        Self {
            board,
            key,
            posted: None,
        }
    }

    /// Shows the pod; costs a comparison when nothing has changed.
    pub fn post(&mut self, pod: &Arc<Pod>, status: &PodStatus) {
        if let Some((shown, of)) = &self.posted
            && Arc::ptr_eq(shown, pod)
            && **of == *status
        {
            return;
        }
        let status = Arc::new(status.clone());
        self.posted = Some((Arc::clone(pod), Arc::clone(&status)));
        let posted = Posted {
            key: self.key.clone(),
            pod: Arc::clone(pod),
            status,
        };
        let uid = self.key.uid.clone();
        self.board.locked(|pods| pods.insert(uid, posted));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.board.locked(|pods| pods.remove(&self.key.uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(board: &Arc<PodBoard>, uid: &str, created: i64) -> (Place, Arc<Pod>) {
        let mut pod = Pod::default();
        pod.metadata.name = Some("web".into());
        pod.metadata.namespace = Some("default".into());
        pod.metadata.uid = Some(uid.into());
        let created = jiff::Timestamp::from_second(created).unwrap();
        pod.metadata.creation_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created),
        );
        (
            Place::new(Arc::clone(board), PodKey::of(&pod)),
            Arc::new(pod),
        )
    }

    #[test]
    fn the_newest_pod_of_a_name_is_found_and_one_that_is_gone_is_not() {
        let board = Arc::new(PodBoard::default());
        let (mut old, old_pod) = place(&board, "1", 1);
        let (mut new, new_pod) = place(&board, "2", 2);
        old.post(&old_pod, &PodStatus::default());
        new.post(&new_pod, &PodStatus::default());
        assert_eq!(board.find("default", "web").unwrap().key.uid.as_str(), "2");
        assert_eq!(board.all().len(), 2);
        drop(new);
        assert_eq!(board.find("default", "web").unwrap().key.uid.as_str(), "1");
        assert!(board.find("other", "web").is_none());
        drop(old);
        assert!(board.all().is_empty());
    }
}
