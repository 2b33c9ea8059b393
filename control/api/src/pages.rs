//! Lists in pages: tokens, and the snapshots that later pages are cut from.
//!
//! All pages of a list show one revision. A snapshot shares its objects with the store, so a few
//! of them are kept for clients that have not read their last page; who comes too late is told
//! "expired" and lists again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use swiftlet_client::api::ApiError;
use swiftlet_store::Snapshot;
use tokio::time::Instant;

use crate::error;

/// Snapshots kept for unfinished lists.
const SNAPSHOTS_MAX: usize = 32;
/// How long a list may take to ask for its next page (etcd's default compaction interval in
/// Kubernetes).
const EXPIRY: Duration = Duration::from_mins(5);

/// Where a list goes on. Opaque for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// Version of the token's own form.
    v: u8,
    /// The list's revision.
    pub(crate) revision: u64,
    /// The key of the last object shown.
    pub(crate) after: String,
}

impl Token {
    pub(crate) fn new(revision: u64, after: &str) -> Self {
        Self {
            v: 1,
            revision,
            after: after.into(),
        }
    }

    pub(crate) fn encoded(&self) -> String {
        let json = serde_json::to_vec(self).expect("a token has only a number and a string");
        URL_SAFE_NO_PAD.encode(json)
    }

    pub(crate) fn decoded(text: &str) -> Result<Self, ApiError> {
        URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .filter(|token: &Self| token.v == 1)
            .ok_or_else(|| error::bad_request("continue key is not valid: bad encoding"))
    }
}

/// The kept snapshots with the time at which each was first needed, oldest first. The mutex is held
/// for a scan of a few dozen numbers.
#[derive(Default)]
pub(crate) struct Pages {
    kept: Mutex<VecDeque<(Instant, Snapshot)>>,
}

impl Pages {
    /// Keeps a snapshot for the next page.
    pub(crate) fn keep(&self, snapshot: &Snapshot) {
        let mut kept = self.unexpired();
        if kept
            .iter()
            .any(|(_, other)| other.revision() == snapshot.revision())
        {
            return;
        }
        if kept.len() == SNAPSHOTS_MAX {
            kept.pop_front();
        }
        kept.push_back((Instant::now(), snapshot.without_changes()));
    }

    /// The snapshot of a revision.
    pub(crate) fn find(&self, revision: u64) -> Result<Snapshot, ApiError> {
        let kept = self.unexpired();
        let found = kept
            .iter()
            .find(|(_, snapshot)| snapshot.revision().0 == revision);
        found.map(|(_, snapshot)| snapshot.clone()).ok_or_else(|| {
            error::expired(
                "The provided continue parameter is too old to display a consistent list result. \
                 You must start a new list without the continue parameter.",
            )
        })
    }

    /// Lets go of snapshots that nobody came back for.
    pub(crate) fn expire(&self) {
        drop(self.unexpired());
    }

    fn unexpired(&self) -> MutexGuard<'_, VecDeque<(Instant, Snapshot)>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while kept
            .front()
            .is_some_and(|(since, _)| now.duration_since(*since) >= EXPIRY)
        {
            kept.pop_front();
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_store::{Store, StoreOptions};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_is_kept_for_a_while_and_not_for_ever() {
        let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
        let (pages, snapshot) = (Pages::default(), store.snapshot());
        let revision = snapshot.revision().0;
        pages.keep(&snapshot);
        tokio::time::advance(EXPIRY / 2).await;
        pages.keep(&snapshot);
        assert!(pages.find(revision).is_ok());
        tokio::time::advance(EXPIRY / 2).await;
        assert!(pages.find(revision).unwrap_err().is_expired());
    }
}
