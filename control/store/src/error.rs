//! What can go wrong in the store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use swiftlet_sys::file_thread::FileError;

use crate::{Entry, Op, Revision};

/// Why a store could not be opened, or its journal not be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory cannot be made or listed.
    #[error("cannot use the store's directory {dir}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error("the store in {dir} is in use by another process (its lock is held)")]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A request to the disk failed.
    #[error("the store's disk failed")]
    File(#[from] FileError),
    /// A file is damaged at a place where a crash cannot have damaged it.
    #[error("{file} is damaged at byte {offset}: {reason}")]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A journal file that is needed is not there.
    #[error("journal file {file} is missing")]
    MissingSegment {
        /// The file that was looked for.
        file: PathBuf,
    },
    /// The file was written by a version that this one does not understand.
    #[error("{file} has format version {found}, this program reads version {known}")]
    Version {
        /// The file.
        file: PathBuf,
        /// Version in the file.
        found: u32,
        /// Version that is understood.
        known: u32,
    },
}

impl StoreError {
    /// Whether the disk has no room left.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::File(error) if error.is_disk_full())
    }
}

/// Why a write was refused. A refused write took no revision.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The condition did not hold.
    #[error("the entry is not what the writer expected")]
    Conflict {
        /// What is there instead; `None`: nothing.
        current: Option<Entry>,
    },
    /// The queue of writes is full; the operation is given back.
    #[error("the queue of writes is full")]
    Full(Op),
    /// The object is larger than the store takes.
    #[error("the object has {size_bytes} bytes, the limit is {limit_bytes}")]
    TooLarge {
        /// Size of the object.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The place for the revision lies outside of the object.
    #[error("the revision's slot {slot} lies outside of an object of {size_bytes} bytes")]
    SlotOutOfRange {
        /// The place asked for.
        slot: usize,
        /// Size of the object.
        size_bytes: usize,
    },
    /// The journal could not be written. The state is unchanged and reads go on; the next
    /// write tries the disk again. Only if the process also dies before the disk has let the
    /// rest of the write be cut off may a restart find it carried out.
    #[error("the journal cannot be written")]
    Storage(#[source] Arc<StoreError>),
    /// The store was shut down.
    #[error("the store is shut down")]
    Closed,
}

impl WriteError {
    /// Whether the same operation may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Storage(_))
    }
}

/// The changes after a revision are not in memory any more: the reader lists again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old: revision {requested} was asked for, changes are kept after {oldest}")]
pub struct TooOld {
    /// The revision after which changes were asked for.
    pub requested: Revision,
    /// The lowest revision after which all changes are still known.
    pub oldest: Revision,
}
