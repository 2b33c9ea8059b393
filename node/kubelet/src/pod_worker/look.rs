//! When a worker looks again without being told. Each part of a pass that finds something to be too
//! early says so here; whoever is told by an answer or a hint says nothing.

use std::time::Instant;

/// The earliest of all times that were said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    next: Option<Instant>,
}

impl Look {
    /// There is something to do at that time.
    pub(crate) fn at(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |before| before.min(at)));
    }

    /// The same, if there is such a time.
    pub(crate) fn maybe(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.at(at);
        }
    }

    /// When there is something to do first.
    pub(crate) fn next(self) -> Option<Instant> {
        self.next
    }
}
