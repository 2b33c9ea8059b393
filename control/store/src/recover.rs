//! From the files of a directory to the state that they stand for.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftlet_sys::file_thread::{FileThread, OpenFile};

use crate::compact::remove_before;
use crate::journal::file::{FileHeader, FileKind, Listing, create_journal};
use crate::journal::frame::{Found, find};
use crate::journal::record::{Record, take};
use crate::journal::{Journal, JournalStart};
use crate::lock::DirLock;
use crate::snapshot::{Map, Stored};
use crate::{Revision, StoreError, StoreOptions};

/// Mode of the directory: secrets are stored in it.
const DIRECTORY_MODE: u32 = 0o700;
/// Number of the first journal file.
const FIRST_SEQUENCE: u64 = 1;

/// What was found when the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Entries in the store.
    pub entries: usize,
    /// Revision that the store continues after.
    pub revision: Revision,
    /// The snapshot file that was loaded.
    pub snapshot: Option<PathBuf>,
    /// Journal records that were replayed.
    pub records: u64,
    /// Bytes of unacknowledged writes that were cut off the last journal file.
    pub torn_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// A store as its files tell it.
pub(crate) struct Recovered {
    pub(crate) map: Map,
    pub(crate) journal: Journal,
    pub(crate) lock: DirLock,
    pub(crate) report: RecoveryReport,
}

/// The state during the replay.
struct Replay {
    map: Map,
    /// Last revision of the last frame: frames never go back.
    last: Revision,
    /// Highest revision that may have been handed out without a frame.
    floor: Revision,
    records: u64,
    /// The journal file that continues what has been read.
    next: u64,
    snapshot: Option<(PathBuf, u64)>,
}

/// A file of frames that is being read.
struct Source<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    salt: u32,
    /// Whether a crash may have cut its end.
    may_be_torn: bool,
}

/// Locks the directory, reads the newest sound snapshot and every journal file after it, and
/// cuts off what a crash has left of an unacknowledged batch.
pub(crate) async fn recover(
    options: &StoreOptions,
    files: FileThread,
) -> Result<Recovered, StoreError> {
    let begin = Instant::now();
    let dir = options.dir.as_path();
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(dir)
        .map_err(|source| StoreError::Directory {
            dir: dir.into(),
            source,
        })?;
    let lock = DirLock::take(dir)?;
    let listing = Listing::read(dir)?;
    for path in &listing.temporary {
        files.remove(path).await?;
    }
    let mut replay = load_snapshot(&files, dir, &listing).await?;
    let (current, header, end, torn_bytes) =
        replay_journals(&files, dir, &listing, &mut replay).await?;
    if replay.snapshot.is_some() {
        remove_before(&files, dir, replay.next).await?;
    }
    let revision = replay.last.max(replay.floor);
    let snapshot_bytes = replay.snapshot.as_ref().map_or(0, |(_, bytes)| *bytes);
    let report = RecoveryReport {
        entries: replay.map.len(),
        revision,
        snapshot: replay.snapshot.map(|(path, _)| path),
        records: replay.records,
        torn_bytes,
        duration: begin.elapsed(),
    };
    let journal = Journal::new(JournalStart {
        files,
        dir: dir.into(),
        current,
        header,
        end,
        covered: revision,
        snapshot_bytes,
        segment_bytes_max: options.limits.segment_bytes,
    });
    Ok(Recovered {
        map: replay.map,
        journal,
        lock,
        report,
    })
}

/// The newest snapshot that is sound, or the empty state if there never was one.
async fn load_snapshot(
    files: &FileThread,
    dir: &Path,
    listing: &Listing,
) -> Result<Replay, StoreError> {
    let mut first_error = None;
    for sequence in listing.snapshots.iter().rev() {
        let path = FileKind::Snapshot.path(dir, *sequence);
        let bytes = files.read(&path).await?;
        match read_snapshot(&path, &bytes, *sequence) {
            Ok(replay) => return Ok(replay),
            Err(error) => {
                tracing::error!(%error, "a snapshot is damaged, trying the one before");
                first_error.get_or_insert(error);
            }
        }
    }
    // Without a snapshot everything must be in the journal, from its first file on.
    match first_error {
        Some(error) if listing.journals.first() != Some(&FIRST_SEQUENCE) => Err(error),
        _ => Ok(Replay::empty(FIRST_SEQUENCE)),
    }
}

fn read_snapshot(path: &Path, bytes: &[u8], sequence: u64) -> Result<Replay, StoreError> {
    let header = read_header(FileKind::Snapshot, path, bytes, sequence)?;
    let mut replay = Replay::empty(sequence);
    let source = Source {
        path,
        bytes,
        salt: header.salt,
        may_be_torn: false,
    };
    let mut counted = None;
    replay.frames(&source, |replay, record| match record {
        Record::Put(entry) => {
            replay.put(entry);
            true
        }
        Record::End { entries } => counted.replace(entries).is_none(),
        Record::Delete { .. } | Record::Reserve { .. } => false,
    })?;
    if counted != Some(replay.map.len() as u64) {
        let (file, offset) = (path.into(), bytes.len() as u64);
        let reason = "the number of entries does not match";
        return Err(StoreError::Corrupt {
            file,
            offset,
            reason,
        });
    }
    replay.floor = header.floor;
    replay.records = 0;
    replay.snapshot = Some((path.into(), bytes.len() as u64));
    Ok(replay)
}

/// Replays every journal file from `replay.next` on. Returns the last one, open, its header,
/// where it ends and how much was cut off.
async fn replay_journals(
    files: &FileThread,
    dir: &Path,
    listing: &Listing,
    replay: &mut Replay,
) -> Result<(OpenFile, FileHeader, u64, u64), StoreError> {
    let last = listing.journals.last().copied().unwrap_or(0);
    if replay.snapshot.is_none() && last == 0 {
        let header = FileHeader::new(FileKind::Journal, replay.next, replay.floor);
        let current = create_journal(files, dir, &header).await?;
        return Ok((current, header, FileHeader::BYTES as u64, 0));
    }
    // A snapshot's journal is made before the snapshot.
    let mut sequence = replay.next;
    loop {
        let path = FileKind::Journal.path(dir, sequence);
        if listing.journals.binary_search(&sequence).is_err() {
            return Err(StoreError::MissingSegment { file: path });
        }
        let bytes = files.read(&path).await?;
        let header = read_header(FileKind::Journal, &path, &bytes, sequence)?;
        replay.floor = replay.floor.max(header.floor);
        let may_be_torn = sequence == last;
        let source = Source {
            path: &path,
            bytes: &bytes,
            salt: header.salt,
            may_be_torn,
        };
        let end = replay.frames(&source, Replay::apply)? as u64;
        if sequence < last {
            sequence += 1;
            continue;
        }
        let torn_bytes = bytes.len() as u64 - end;
        let current = files.open(&path).await?;
        // Forces the file to disk as well: after a kill the last frames may be in the page
        // cache alone, and from now on they are shown to readers.
        files.truncate(&current, end).await?;
        return Ok((current, header, end, torn_bytes));
    }
}

fn read_header(
    kind: FileKind,
    path: &Path,
    bytes: &[u8],
    sequence: u64,
) -> Result<FileHeader, StoreError> {
    let header = FileHeader::decode(kind, bytes, path)?;
    if header.sequence == sequence {
        return Ok(header);
    }
    let reason = "the file's number is not the one in its name";
    Err(StoreError::Corrupt {
        file: path.into(),
        offset: 0,
        reason,
    })
}

impl Replay {
    fn empty(next: u64) -> Self {
        Self {
            map: Map::new(),
            last: Revision::EMPTY,
            floor: Revision::EMPTY,
            records: 0,
            next,
            snapshot: None,
        }
    }

    /// Hands every record of a file to `apply`, which returns false for one that has no place
    /// there. Returns where the sound frames end.
    fn frames(
        &mut self,
        source: &Source<'_>,
        mut apply: impl FnMut(&mut Self, Record) -> bool,
    ) -> Result<usize, StoreError> {
        let mut offset = FileHeader::BYTES;
        loop {
            let corrupt = |reason| StoreError::Corrupt {
                file: source.path.into(),
                offset: offset as u64,
                reason,
            };
            match find(&source.bytes[offset..], offset, source.salt) {
                Found::End => return Ok(offset),
                Found::Torn if source.may_be_torn => return Ok(offset),
                Found::Torn => return Err(corrupt("the file is cut off")),
                Found::Damaged(reason) => return Err(corrupt(reason)),
                Found::Frame {
                    last,
                    mut payload,
                    len,
                } => {
                    if last < self.last {
                        return Err(corrupt("the revisions go back"));
                    }
                    while !payload.is_empty() {
                        let record =
                            take(&mut payload).ok_or_else(|| corrupt("a record makes no sense"))?;
                        if !apply(self, record) {
                            return Err(corrupt("a record has no place here"));
                        }
                        self.records += 1;
                    }
                    self.last = last;
                    offset += len;
                }
            }
        }
    }

    fn apply(&mut self, record: Record) -> bool {
        match record {
            Record::Put(entry) => self.put(entry),
            Record::Delete { key, .. } => {
                self.map.remove(&key);
            }
            Record::Reserve { through } => self.floor = self.floor.max(through),
            Record::End { .. } => return false,
        }
        true
    }

    fn put(&mut self, entry: crate::Entry) {
        let key = entry.key.clone();
        self.map.insert(
            key,
            Arc::new(Stored {
                entry,
                durable: true,
            }),
        );
    }
}
