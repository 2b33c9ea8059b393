//! Where the logs of pods lie whose names were seen.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use swiftlet_model::ids::PodUid;

use crate::folders::Folders;
use crate::order::Order;

/// The log folders by the pods' uids: without it, each end of a pod would list the folders of all
/// pods. A pod that is not in it, from before this program started, is looked for. The lock is held
/// for a look-up.
#[derive(Debug, Default)]
pub(crate) struct Known {
    logs: Mutex<HashMap<PodUid, PathBuf>>,
}

impl Known {
    /// The pod's folders are made.
    pub(crate) fn put(&self, folders: &Folders, order: &Order) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.insert(order.key.uid.clone(), folders.pod_logs(&order.key));
    }

    /// The pod's log folder.
    pub(crate) fn logs(&self, pod: &PodUid) -> Option<PathBuf> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.get(pod).cloned()
    }

    /// Nothing of the pod is left.
    pub(crate) fn forget(&self, pod: &PodUid) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.remove(pod);
    }
}
