//! The revisioned store: one writer, snapshots by pointer swap, a journal.
//!
//! The store knows bytes, keys and revisions; no HTTP, no JSON, no Kubernetes meaning.
//!
//! ```text
//!  Store::write ──bounded queue──▶ writer task ──batch──▶ journal (one write, one fdatasync)
//!                                       │                        │
//!                                       │◀───────── on disk ─────┘
//!                                       ├─ publishes State {map, ring, revision}: one pointer swap
//!                                       ├─ wakes the watches, once per batch
//!                                       └─ answers every writer of the batch
//!  Store::snapshot ── one atomic load of State; never blocks, never changes
//!  Store::watch    ── a cursor over State's ring of changes; behind it: too old
//! ```
//!
//! The state belongs to the writer task alone; everybody else holds an immutable `State`.
//! A write is acknowledged after its journal record is on disk; what was acknowledged
//! survives a kill at any moment, and no revision is ever handed out twice.
#![forbid(unsafe_code)]

mod compact;
mod draft;
mod entry;
mod error;
mod journal;
mod key;
mod lock;
mod log;
mod options;
mod recover;
mod revision;
mod snapshot;
mod store;
mod watch;
mod write;
mod writer;

pub use entry::{Change, ChangeKind, Entry};
pub use error::{StoreError, TooOld, WriteError};
pub use key::Key;
pub use options::{Limits, StoreOptions};
pub use recover::RecoveryReport;
pub use revision::Revision;
pub use snapshot::{Snapshot, Stats};
pub use store::Store;
pub use watch::Watch;
pub use write::{Durability, Expect, Op, Template};
