//! A cursor over the changes of a prefix.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::snapshot::State;
use crate::{Change, Revision, TooOld};

/// Changes that one call of [`Watch::next`] returns at most.
const WATCH_BATCH_MAX: usize = 1024;

/// Sees every change of the keys with its prefix, once and in order.
#[derive(Debug)]
pub struct Watch {
    prefix: Box<str>,
    position: Revision,
    state: Arc<ArcSwap<State>>,
    published: watch::Receiver<Revision>,
}

impl Watch {
    pub(crate) fn new(
        prefix: &str,
        after: Revision,
        state: Arc<ArcSwap<State>>,
        published: watch::Receiver<Revision>,
    ) -> Result<Self, TooOld> {
        state.load().log.index_after(after)?;
        Ok(Self {
            prefix: prefix.into(),
            position: after,
            state,
            published,
        })
    }

    /// The revision up to which every change of the prefix has been returned.
    pub fn position(&self) -> Revision {
        self.position
    }

    /// Waits for the next changes: at least one, oldest first. May be dropped and called
    /// again without losing a change. After the store's shutdown it never returns.
    ///
    /// # Errors
    /// [`TooOld`] if the watch has fallen behind the ring; it must list again.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, TooOld> {
        loop {
            // Marked as seen before the state is read: what is published after this line
            // wakes `changed` below, so no wake-up is lost. The other half of the pair is
            // the writer, which swaps the state first and sends the revision second.
            self.published.borrow_and_update();
            let changes = self.take_ready()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            if self.published.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The changes that are already there, possibly none; does not wait.
    ///
    /// # Errors
    /// [`TooOld`] as in [`Watch::next`].
    pub fn take_ready(&mut self) -> Result<Vec<Arc<Change>>, TooOld> {
        let state = self.state.load();
        let mut index = state.log.index_after(self.position)?;
        let mut changes = Vec::new();
        while let Some(change) = state.log.get(index) {
            if changes.len() == WATCH_BATCH_MAX {
                return Ok(changes);
            }
            if change.key.as_str().starts_with(&*self.prefix) {
                changes.push(Arc::clone(change));
            }
            self.position = change.revision;
            index += 1;
        }
        Ok(changes)
    }
}
