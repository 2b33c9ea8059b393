//! The ring of changes that watches read.

use std::sync::Arc;

use imbl::Vector;

use crate::{Change, Limits, Revision, TooOld};

/// The last changes, bounded by count and bytes.
///
/// Within one life of the store every revision is one change, so the ring holds consecutive
/// revisions and a change is found by subtraction. A restart begins with an empty ring.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    changes: Vector<Arc<Change>>,
    bytes: usize,
    oldest: Revision,
}

impl Log {
    /// An empty ring: a watch can start after `oldest` or later.
    pub(crate) fn starting_after(oldest: Revision) -> Self {
        Self {
            changes: Vector::new(),
            bytes: 0,
            oldest,
        }
    }

    /// The lowest revision after which all changes are known.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Appends a change and lets go of the oldest ones beyond the limits.
    pub(crate) fn push(&mut self, change: Change, limits: &Limits) {
        debug_assert!(
            self.changes
                .back()
                .map_or(self.oldest, |last| last.revision)
                .next()
                == change.revision
        );
        self.bytes += weight(&change);
        self.changes.push_back(Arc::new(change));
        while self.changes.len() > limits.ring_changes || self.bytes > limits.ring_bytes {
            let Some(first) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= weight(&first);
            self.oldest = first.revision;
        }
    }

    /// Position in the ring of the first change after `after`.
    ///
    /// # Errors
    /// [`TooOld`] if changes after `after` have been let go of.
    pub(crate) fn index_after(&self, after: Revision) -> Result<usize, TooOld> {
        match after.0.checked_sub(self.oldest.0) {
            Some(index) => Ok(usize::try_from(index).unwrap_or(usize::MAX)),
            None => Err(TooOld {
                requested: after,
                oldest: self.oldest,
            }),
        }
    }

    /// The change at a position of [`Log::index_after`].
    pub(crate) fn get(&self, index: usize) -> Option<&Arc<Change>> {
        self.changes.get(index)
    }
}

/// Bytes that a change keeps alive. The previous value is not counted: it is shared with the
/// change before.
fn weight(change: &Change) -> usize {
    change.key.as_str().len() + change.value.len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{ChangeKind, Key};

    fn change(revision: u64, size: usize) -> Change {
        Change {
            revision: Revision(revision),
            key: Key::from("k"),
            kind: ChangeKind::Updated,
            value: Bytes::from(vec![0; size]),
            previous: None,
        }
    }

    #[test]
    fn the_ring_is_bounded_by_count_and_by_bytes() {
        let limits = Limits {
            ring_changes: 3,
            ring_bytes: 100,
            ..Limits::default()
        };
        let mut log = Log::starting_after(Revision(10));
        for revision in 11..=15 {
            log.push(change(revision, 9), &limits);
        }
        assert_eq!((log.len(), log.oldest()), (3, Revision(12)));
        log.push(change(16, 80), &limits);
        assert_eq!((log.len(), log.oldest()), (2, Revision(14)));
        log.push(change(17, 200), &limits);
        assert_eq!((log.len(), log.oldest()), (0, Revision(17)));
        assert!(log.index_after(Revision(16)).is_err());
        assert_eq!(log.index_after(Revision(17)), Ok(0));
    }
}
