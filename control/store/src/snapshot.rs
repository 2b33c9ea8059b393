//! The immutable state that readers hold.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::log::Log;
use crate::{Entry, Key, Revision};

/// An entry and whether it is in the journal.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) entry: Entry,
    pub(crate) durable: bool,
}

/// Entries by key. A clone shares everything; a change copies the path to it, once per batch.
pub(crate) type Map = OrdMap<Key, Arc<Stored>>;

/// Everything a reader can see, published as one.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) map: Map,
    pub(crate) log: Log,
    pub(crate) revision: Revision,
    pub(crate) journal_bytes: u64,
    pub(crate) syncs: u64,
}

/// The store at one revision. It never changes; keep it as long as you like, but not longer
/// than you need: it keeps its values alive.
#[derive(Clone, Debug)]
pub struct Snapshot(pub(crate) Arc<State>);

impl Snapshot {
    /// The revision of the snapshot.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// The lowest revision after which a watch can still start.
    pub fn oldest(&self) -> Revision {
        self.0.log.oldest()
    }

    /// The same entries without the changes that led to them: for a snapshot that is kept for a
    /// while, so that it does not keep old values alive. No watch can start from it.
    #[must_use]
    pub fn without_changes(&self) -> Self {
        Self(Arc::new(State {
            map: self.0.map.clone(),
            log: Log::starting_after(self.0.revision),
            ..*self.0
        }))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.map.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.0.map.is_empty()
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.0.map.get(key).map(|stored| &stored.entry)
    }

    /// The entries whose key begins with `prefix`, in the order of the keys.
    pub fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.range_from(prefix, None)
    }

    /// The same, but only what comes after the key `start_after` (which need not exist): the
    /// next page of a list.
    pub fn range_from<'a>(
        &'a self,
        prefix: &'a str,
        start_after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Entry> {
        let start = match start_after {
            Some(key) if key >= prefix => Bound::Excluded(key),
            _ => Bound::Included(prefix),
        };
        self.0
            .map
            .range::<_, str>((start, Bound::Unbounded))
            .map(|(_, stored)| &stored.entry)
            .take_while(move |entry| entry.key.as_str().starts_with(prefix))
    }
}

/// Figures of a store, for metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Revision of the last change.
    pub revision: Revision,
    /// Number of entries.
    pub entries: usize,
    /// Bytes in the current journal file.
    pub journal_bytes: u64,
    /// Times that the journal was forced to disk since the store was opened.
    pub syncs: u64,
    /// Changes kept for watches.
    pub ring_len: usize,
}
