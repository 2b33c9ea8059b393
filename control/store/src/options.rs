//! Options and limits of a store.

use std::path::PathBuf;

use swiftlet_sys::file_thread::FileThread;

use crate::Durability;

/// Writes that wait for the writer; more are given back or wait.
const QUEUE_OPS_MAX: usize = 1024;
/// Writes that share one write and one fdatasync.
const BATCH_OPS_MAX: usize = 1024;
/// Bytes of a batch after which no further write joins it: bounds the time to its fdatasync.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Size of one object: etcd's default request limit (`--max-request-bytes`).
const OBJECT_BYTES_MAX: usize = 3 << 19;
/// Changes kept for watches.
const RING_CHANGES_MAX: usize = 65_536;
/// Bytes of values kept for watches.
const RING_BYTES_MAX: usize = 64 << 20;
/// Size of a journal file after which a snapshot file is written.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Where and how a store keeps its data.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Directory of the journal; made if it does not exist.
    pub dir: PathBuf,
    /// [`Durability::Memory`] opens no file at all and loses everything at exit: for benches.
    pub durability: Durability,
    /// Limits.
    pub limits: Limits,
    /// The file thread to use; `None`: the store starts one of its own.
    pub files: Option<FileThread>,
}

impl StoreOptions {
    /// A durable store in `dir` with the default limits.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::Journal,
            limits: Limits::default(),
            files: None,
        }
    }

    /// A store without a disk, for benches and tests.
    pub fn in_memory() -> Self {
        Self {
            durability: Durability::Memory,
            ..Self::new(PathBuf::new())
        }
    }
}

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Writes that wait in the queue.
    pub queue_ops: usize,
    /// Writes of one batch.
    pub batch_ops: usize,
    /// Bytes of one batch (one more object may exceed it).
    pub batch_bytes: usize,
    /// Bytes of one object.
    pub object_bytes: usize,
    /// Changes kept for watches.
    pub ring_changes: usize,
    /// Bytes of values kept for watches.
    pub ring_bytes: usize,
    /// Bytes of a journal file after which a snapshot is written.
    pub segment_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_ops: QUEUE_OPS_MAX,
            batch_ops: BATCH_OPS_MAX,
            batch_bytes: BATCH_BYTES_MAX,
            object_bytes: OBJECT_BYTES_MAX,
            ring_changes: RING_CHANGES_MAX,
            ring_bytes: RING_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES_MAX,
        }
    }
}
