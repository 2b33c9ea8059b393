//! The store's clock: one number that only grows.

use std::fmt;

/// Number of a change. Assigned once, in order, by the writer; never reused, not even
/// after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Revision of a store in which nothing was ever written. Not 0, because "0" has a
    /// meaning of its own in list and watch requests; etcd starts at 1 as well.
    pub const EMPTY: Self = Self(1);

    /// The revision after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
