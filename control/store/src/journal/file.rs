//! The files of the store's directory: their names and their headers.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use swiftlet_sys::file_thread::{FileThread, OpenFile};

use crate::{Revision, StoreError};

/// Version of the format of both kinds of files.
const VERSION: u32 = 1;
/// Digits of a file's number, so that names sort like numbers.
const SEQUENCE_DIGITS: usize = 20;
/// Ending of files that are not finished.
pub(crate) const TEMPORARY: &str = ".tmp";

/// What a file of the directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Journal,
    Snapshot,
}

impl FileKind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Journal => *b"swlt-jrn",
            Self::Snapshot => *b"swlt-snp",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Journal => "journal-",
            Self::Snapshot => "snapshot-",
        }
    }

    /// Path of the file with this number.
    pub(crate) fn path(self, dir: &Path, sequence: u64) -> PathBuf {
        dir.join(format!("{}{sequence:0SEQUENCE_DIGITS$}", self.prefix()))
    }

    fn sequence(self, name: &OsStr) -> Option<u64> {
        let digits = name.to_str()?.strip_prefix(self.prefix())?;
        (digits.len() == SEQUENCE_DIGITS).then(|| digits.parse().ok())?
    }
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) kind: FileKind,
    /// A journal's own number; for a snapshot the number of the journal that continues it.
    pub(crate) sequence: u64,
    /// Highest revision that may have been handed out before this file.
    pub(crate) floor: Revision,
    /// Seed of the file's checksums: bytes of another file, or of a value in which somebody
    /// stored a journal, are not mistaken for frames.
    pub(crate) salt: u32,
}

impl FileHeader {
    pub(crate) const BYTES: usize = 36;

    pub(crate) fn new(kind: FileKind, sequence: u64, floor: Revision) -> Self {
        // The standard library seeds its hash maps from the kernel's random numbers.
        let random = RandomState::new().hash_one(sequence);
        let salt = u32::try_from(random >> 32).expect("the upper half has 32 bits");
        Self {
            kind,
            sequence,
            floor,
            salt,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend(self.kind.magic());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.floor.0.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the header of the file at `path`. Headers are written before the file gets its
    /// name, so a bad one is never a torn one.
    pub(crate) fn decode(kind: FileKind, bytes: &[u8], path: &Path) -> Result<Self, StoreError> {
        let corrupt = |reason| StoreError::Corrupt {
            file: path.into(),
            offset: 0,
            reason,
        };
        let Some(bytes) = bytes.first_chunk::<{ Self::BYTES }>() else {
            return Err(corrupt("the header is cut off"));
        };
        if bytes[..8] != kind.magic() {
            return Err(corrupt("this is not a file of the store"));
        }
        let number = |at: usize| u32::from_le_bytes(array(&bytes[at..]));
        let found = number(8);
        if found != VERSION {
            return Err(StoreError::Version {
                file: path.into(),
                found,
                known: VERSION,
            });
        }
        if number(32) != crc32c::crc32c(&bytes[..32]) {
            return Err(corrupt("the header's checksum does not match"));
        }
        let sequence = u64::from_le_bytes(array(&bytes[16..]));
        let floor = Revision(u64::from_le_bytes(array(&bytes[24..])));
        Ok(Self {
            kind,
            sequence,
            floor,
            salt: number(12),
        })
    }
}

/// The first `N` bytes of a slice that has them.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes
        .first_chunk()
        .expect("the caller has checked the length")
}

/// Creates a journal file with its header, on disk under its name when this returns.
pub(crate) async fn create_journal(
    files: &FileThread,
    dir: &Path,
    header: &FileHeader,
) -> Result<OpenFile, StoreError> {
    let path = FileKind::Journal.path(dir, header.sequence);
    files.write_atomic(&path, header.encode()).await?;
    Ok(files.open(&path).await?)
}

/// What the directory holds, by number, ascending.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) journals: Vec<u64>,
    pub(crate) snapshots: Vec<u64>,
    /// Files that a crash left unfinished.
    pub(crate) temporary: Vec<PathBuf>,
}

impl Listing {
    pub(crate) fn read(dir: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Directory {
            dir: dir.into(),
            source,
        };
        let mut listing = Self::default();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if let Some(sequence) = FileKind::Journal.sequence(&name) {
                listing.journals.push(sequence);
            } else if let Some(sequence) = FileKind::Snapshot.sequence(&name) {
                listing.snapshots.push(sequence);
            } else if name.to_str().is_some_and(|name| name.ends_with(TEMPORARY)) {
                listing.temporary.push(dir.join(name));
            }
        }
        listing.journals.sort_unstable();
        listing.snapshots.sort_unstable();
        Ok(listing)
    }
}
