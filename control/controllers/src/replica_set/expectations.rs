//! What the watch has still to show of our own creations and deletions.
//!
//! Without it a pass that runs before the informer has seen the pods of the last pass would create
//! them again.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swiftlet_client::ObjectKey;
use tokio::time::Instant;

/// After this time the watch is believed as it is (Kubernetes' `ExpectationsTimeout`).
const EXPECTATIONS_LIFETIME: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(super) struct Expectations {
    // A lock, because the event loop and the workers both need the answer at once; no section
    // awaits.
    sets: Mutex<HashMap<ObjectKey, Pending>>,
}

struct Pending {
    creations: usize,
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// Whether everything has been shown, or must be taken as lost.
    pub(super) fn satisfied(&self, key: &ObjectKey) -> bool {
        self.lock().get(key).is_none_or(|pending| {
            let shown = pending.creations == 0 && pending.deletions.is_empty();
            shown || pending.since.elapsed() > EXPECTATIONS_LIFETIME
        })
    }

    /// So many pods are about to be created.
    pub(super) fn expect_creations(&self, key: &ObjectKey, creations: usize) {
        let pending = Pending {
            creations,
            deletions: HashSet::new(),
            since: Instant::now(),
        };
        self.lock().insert(key.clone(), pending);
    }

    /// These pods are about to be deleted.
    pub(super) fn expect_deletions(&self, key: &ObjectKey, deletions: HashSet<String>) {
        let pending = Pending {
            creations: 0,
            deletions,
            since: Instant::now(),
        };
        self.lock().insert(key.clone(), pending);
    }

    /// A creation was shown, or did not happen.
    pub(super) fn created(&self, key: &ObjectKey) {
        if let Some(pending) = self.lock().get_mut(key) {
            pending.creations = pending.creations.saturating_sub(1);
        }
    }

    /// A deletion was shown, or did not happen.
    pub(super) fn deleted(&self, key: &ObjectKey, uid: &str) {
        if let Some(pending) = self.lock().get_mut(key) {
            pending.deletions.remove(uid);
        }
    }

    /// The set is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Pending>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
