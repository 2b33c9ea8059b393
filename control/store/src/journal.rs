//! The journal: what makes a batch of writes survive a crash.
//!
//! ```text
//! <dir>/lock                        held (flock) while a process uses the directory
//! <dir>/snapshot-<N>                every durable entry, as of the beginning of journal-<N>
//! <dir>/journal-<N>, journal-<N+1>  the changes since then
//!
//! file   = header (36 bytes) frame*
//! frame  = head (24 bytes, with a checksum of its own) payload (with a checksum)
//! payload = record*           one frame is one batch: one write, one fdatasync, all or nothing
//! ```
//!
//! Files only grow, so what a crash leaves is a frame that ends too early or has holes of
//! zeros where pages never reached the disk: the torn tail, which was acknowledged to nobody.
//! Anything else that does not check out is damage, and is refused.
//!
//! A batch without durable records (leases) writes nothing. So that its revisions are still
//! never handed out again after a crash, they come from a block that was reserved on disk.

pub(crate) mod file;
pub(crate) mod frame;
pub(crate) mod record;

use std::path::{Path, PathBuf};

use swiftlet_sys::file_thread::{FileThread, OpenFile};

use crate::{Revision, StoreError};
use file::{FileHeader, FileKind};
use frame::Frame;

/// Revisions that one reservation covers: one sync per so many lease renewals. A crash skips
/// at most as many numbers.
const RESERVE_REVISIONS: u64 = 65_536;

/// The current journal file. Owned by the writer.
#[derive(Debug)]
pub(crate) struct Journal {
    files: FileThread,
    dir: PathBuf,
    current: OpenFile,
    sequence: u64,
    salt: u32,
    /// Where the next frame goes: everything before it is on disk.
    end: u64,
    /// Whether there may be bytes of a failed write behind `end`.
    dirty: bool,
    /// No revision above this one is handed out before a frame says so on disk.
    covered: Revision,
    /// Size at which the next file is begun.
    rotate_at: u64,
    segment_bytes_max: u64,
    syncs: u64,
    /// The last frame's buffer, kept for the next one.
    spare: Vec<u8>,
}

/// What [`Journal::new`] continues with.
pub(crate) struct JournalStart {
    pub(crate) files: FileThread,
    pub(crate) dir: PathBuf,
    pub(crate) current: OpenFile,
    pub(crate) header: FileHeader,
    pub(crate) end: u64,
    pub(crate) covered: Revision,
    pub(crate) snapshot_bytes: u64,
    pub(crate) segment_bytes_max: u64,
}

impl Journal {
    pub(crate) fn new(start: JournalStart) -> Self {
        let JournalStart {
            files,
            dir,
            current,
            header,
            end,
            covered,
            ..
        } = start;
        Self {
            files,
            dir,
            current,
            sequence: header.sequence,
            salt: header.salt,
            end,
            dirty: false,
            covered,
            rotate_at: start.segment_bytes_max.max(start.snapshot_bytes),
            segment_bytes_max: start.segment_bytes_max,
            syncs: 0,
            spare: Vec::new(),
        }
    }

    pub(crate) fn files(&self) -> &FileThread {
        &self.files
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// An empty frame to collect a batch in.
    pub(crate) fn frame(&mut self) -> Frame {
        Frame::in_buffer(std::mem::take(&mut self.spare))
    }

    /// Makes a batch durable that ends at `last`. Nothing is written if it has no records and
    /// its revisions are covered.
    ///
    /// # Errors
    /// [`StoreError::File`]: nothing of the batch counts; the next commit tries the disk again.
    pub(crate) async fn commit(
        &mut self,
        mut frame: Frame,
        last: Revision,
    ) -> Result<(), StoreError> {
        if frame.is_empty() {
            if last <= self.covered {
                self.spare = frame.into_buffer();
                return Ok(());
            }
            let through = Revision(last.0 + RESERVE_REVISIONS);
            record::put_reserve(frame.payload(), through);
            self.append(frame, last).await?;
            self.covered = through;
            return Ok(());
        }
        self.append(frame, last).await?;
        self.covered = self.covered.max(last);
        Ok(())
    }

    async fn append(&mut self, frame: Frame, last: Revision) -> Result<(), StoreError> {
        if self.dirty {
            // Records of refused writes must not be found behind the next, shorter frame.
            self.files.truncate(&self.current, self.end).await?;
            self.dirty = false;
        }
        let bytes = frame.seal(last, self.salt);
        let len = bytes.len() as u64;
        self.syncs += 1;
        match self
            .files
            .write_durably(&self.current, bytes, self.end)
            .await
        {
            Ok(mut buffer) => {
                self.end += len;
                buffer.clear();
                self.spare = buffer;
                Ok(())
            }
            Err(error) => {
                // If the cut fails too, the next append tries it again before it writes.
                self.dirty = self.files.truncate(&self.current, self.end).await.is_err();
                Err(error.into())
            }
        }
    }

    /// Whether the file is long enough for a snapshot to be worth its writing.
    pub(crate) fn is_long(&self) -> bool {
        // A file that is left for good must not have rests of a failed write at its end.
        self.end >= self.rotate_at && !self.dirty
    }

    /// Begins the next file; what a snapshot of the state at `revision` replaces is then
    /// everything before it. Returns the new file's number.
    pub(crate) async fn rotate(&mut self, revision: Revision) -> Result<u64, StoreError> {
        let floor = self.covered.max(revision);
        let header = FileHeader::new(FileKind::Journal, self.sequence + 1, floor);
        match file::create_journal(&self.files, &self.dir, &header).await {
            Ok(current) => {
                self.current = current;
                self.sequence = header.sequence;
                self.salt = header.salt;
                self.end = FileHeader::BYTES as u64;
                self.dirty = false;
                Ok(self.sequence)
            }
            Err(error) => {
                // The file may have its name already. It must not stay: records behind it would
                // make a torn tail of the old file look like damage. If it has none, this does
                // nothing.
                let path = FileKind::Journal.path(&self.dir, header.sequence);
                let _ = self.files.remove(&path).await;
                // The old file serves on; not every batch shall try again.
                self.rotate_at = self.end + self.segment_bytes_max / 4;
                Err(error)
            }
        }
    }

    /// Takes the size of the last snapshot into account: a large state is not written again
    /// for a small journal.
    pub(crate) fn snapshot_written(&mut self, bytes: u64) {
        self.rotate_at = self.segment_bytes_max.max(bytes);
    }
}
