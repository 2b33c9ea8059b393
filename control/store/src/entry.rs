//! What is stored, and what is told about a change of it.

use bytes::Bytes;

use crate::{Key, Revision};

/// A stored object. A clone copies no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the object.
    pub key: Key,
    /// The encoded object, its own revision inside.
    pub value: Bytes,
    /// Revision of the last change.
    pub revision: Revision,
    /// Revision of the creation.
    pub created: Revision,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The key did not exist before.
    Created,
    /// The key had a value before.
    Updated,
    /// The key does not exist any more.
    Deleted,
}

/// One change, as watches see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Revision of this change.
    pub revision: Revision,
    /// The key that changed.
    pub key: Key,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The new value; the last state for a deletion.
    pub value: Bytes,
    /// The value before, if there was one.
    pub previous: Option<Bytes>,
}
