//! One thread for files, reached through a bounded queue.
//!
//! The thread runs tokio-uring, and this module is its only door. Reads, writes and syncs go
//! through the ring, so that a slow fdatasync of one file delays no other; the rare requests
//! (open, rename, remove) are plain calls on the same thread. Where the kernel refuses the
//! ring (before 5.6, `io_uring_disabled`, seccomp), all are plain calls, one after the other;
//! [`FileThread::mode`] says which.
//!
//! Requests run side by side: whoever needs an order awaits the first answer before asking
//! for the second.

mod plain;
mod request;
mod ring;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use request::{FileId, Reply, Request, Token};

/// Requests that wait for the thread; who brings more waits with them.
const QUEUE_REQUESTS_MAX: usize = 256;
/// Requests that are in the ring at the same time (half of tokio-uring's 256 entries).
const IN_FLIGHT_MAX: usize = 128;

/// Why a request to the file thread failed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The kernel refused a call.
    #[error("{call} of {path} failed")]
    Call {
        /// The call that failed.
        call: &'static str,
        /// The file it was about.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the file thread")]
    Start(#[source] io::Error),
    /// The thread has ended.
    #[error("the file thread has ended")]
    Gone,
}

impl FileError {
    /// Whether the disk (or the quota, or the allowed file size) is used up.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Call { source, .. } => {
                matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            Self::Start(_) | Self::Gone => false,
        }
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// How the thread asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Through a ring (Linux 5.6 and later).
    IoUring,
    /// With `pread`, `pwrite` and `fdatasync`.
    PlainCalls,
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::PlainCalls => "plain calls",
        })
    }
}

/// Handle of the file thread. The thread ends, after its last request, with the last handle.
#[derive(Clone, Debug)]
pub struct FileThread {
    requests: mpsc::Sender<Request>,
    mode: FileMode,
}

/// A file that the thread holds open. It is closed some time after the last clone is gone.
#[derive(Clone, Debug)]
pub struct OpenFile {
    id: FileId,
    path: Arc<Path>,
    len: u64,
    _token: Arc<Token>,
}

impl OpenFile {
    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length when it was opened.
    pub fn len_at_open(&self) -> u64 {
        self.len
    }
}

impl FileThread {
    /// Starts the thread and asks the kernel for a ring; without one it uses plain calls and
    /// says so once in the log.
    pub fn start() -> Result<Self, FileError> {
        Self::start_as(true)
    }

    /// Starts the thread without a ring.
    pub fn start_plain() -> Result<Self, FileError> {
        Self::start_as(false)
    }

    fn start_as(try_ring: bool) -> Result<Self, FileError> {
        let (requests, queue) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let (report, mode) = std::sync::mpsc::sync_channel(1);
        thread::Builder::new()
            .name("files".into())
            .spawn(move || {
                if try_ring {
                    match ring::start() {
                        Ok(runtime) => {
                            // The receiver waits for exactly this value.
                            let _ = report.send(FileMode::IoUring);
                            return runtime.block_on(ring::serve(queue));
                        }
                        Err(error) => {
                            tracing::warn!(%error, "no io_uring: files are served by plain calls");
                        }
                    }
                }
                let _ = report.send(FileMode::PlainCalls);
                plain::serve(queue);
            })
            .map_err(FileError::Start)?;
        let mode = mode.recv().map_err(|_| FileError::Gone)?;
        Ok(Self { requests, mode })
    }

    /// How the thread asks the kernel.
    pub fn mode(&self) -> FileMode {
        self.mode
    }

    /// Opens a file for reading and writing; it is created if it does not exist.
    pub async fn open(&self, path: &Path) -> Result<OpenFile, FileError> {
        let (id, token, len) = self
            .ask(|reply| Request::Open {
                path: path.into(),
                reply,
            })
            .await?;
        Ok(OpenFile {
            id,
            path: path.into(),
            len,
            _token: token,
        })
    }

    /// Creates a file that must not exist yet.
    pub async fn create(&self, path: &Path) -> Result<OpenFile, FileError> {
        let (id, token, len) = self
            .ask(|reply| Request::Create {
                path: path.into(),
                reply,
            })
            .await?;
        Ok(OpenFile {
            id,
            path: path.into(),
            len,
            _token: token,
        })
    }

    /// Writes all of `bytes` at `offset` and forces them to disk: one request, one answer.
    /// Gives the buffer back for the next batch. After an error the range may hold anything.
    pub async fn write_durably(
        &self,
        file: &OpenFile,
        bytes: Vec<u8>,
        offset: u64,
    ) -> Result<Vec<u8>, FileError> {
        self.write_as(file, bytes, offset, true).await
    }

    /// Writes all of `bytes` at `offset`, without forcing them to disk.
    pub async fn write(
        &self,
        file: &OpenFile,
        bytes: Vec<u8>,
        offset: u64,
    ) -> Result<Vec<u8>, FileError> {
        self.write_as(file, bytes, offset, false).await
    }

    async fn write_as(
        &self,
        file: &OpenFile,
        bytes: Vec<u8>,
        offset: u64,
        sync: bool,
    ) -> Result<Vec<u8>, FileError> {
        let file = file.id;
        self.ask(|reply| Request::Write {
            file,
            bytes,
            offset,
            sync,
            reply,
        })
        .await
    }

    /// Forces the file's data, and its length, to disk.
    pub async fn sync(&self, file: &OpenFile) -> Result<(), FileError> {
        let file = file.id;
        self.ask(|reply| Request::Sync { file, reply }).await
    }

    /// Cuts the file to `len` bytes and forces that to disk.
    pub async fn truncate(&self, file: &OpenFile, len: u64) -> Result<(), FileError> {
        let file = file.id;
        self.ask(|reply| Request::Truncate { file, len, reply })
            .await
    }

    /// Reads a whole file.
    pub async fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.ask(|reply| Request::Read {
            path: path.into(),
            reply,
        })
        .await
    }

    /// Writes a file so that after a crash either the old or the new content is there:
    /// temporary file beside it, fsync, rename, fsync of the directory.
    pub async fn write_atomic(&self, path: &Path, bytes: Vec<u8>) -> Result<(), FileError> {
        self.ask(|reply| Request::WriteAtomic {
            path: path.into(),
            bytes,
            reply,
        })
        .await
    }

    /// Renames a file and forces the directory of the new name to disk.
    pub async fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.ask(|reply| Request::Rename {
            from: from.into(),
            to: to.into(),
            reply,
        })
        .await
    }

    /// Removes a file. One that is not there is removed already.
    pub async fn remove(&self, path: &Path) -> Result<(), FileError> {
        self.ask(|reply| Request::Remove {
            path: path.into(),
            reply,
        })
        .await
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, FileError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(request(reply))
            .await
            .map_err(|_| FileError::Gone)?;
        answer.await.map_err(|_| FileError::Gone)?
    }
}

#[cfg(test)]
mod tests;
