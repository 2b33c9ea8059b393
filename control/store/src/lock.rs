//! The lock that keeps two processes from sharing a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::StoreError;

/// Held while the store is open; the kernel lets go of it when the process ends, however.
#[derive(Debug)]
pub(crate) struct DirLock(#[expect(dead_code, reason = "held, not used")] File);

impl DirLock {
    /// Takes the lock of a directory, without waiting.
    pub(crate) fn take(dir: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Directory {
            dir: dir.into(),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("lock"))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { dir: dir.into() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}
