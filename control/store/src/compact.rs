//! Snapshot files: what lets old journal files go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use swiftlet_sys::file_thread::FileThread;

use crate::StoreError;
use crate::journal::file::{FileHeader, FileKind, Listing, TEMPORARY};
use crate::journal::frame::Frame;
use crate::journal::record;
use crate::snapshot::State;

/// Bytes of one frame of a snapshot file: the writer's own frames wait for no longer.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes the durable entries of `state` as the snapshot that `journal-<next>` continues, then
/// removes what it replaces. Runs beside the writer, on a state that never changes. Returns
/// the size of the file.
///
/// If it fails or the process ends meanwhile, the older files are still there.
pub(crate) async fn write_snapshot(
    files: FileThread,
    dir: PathBuf,
    state: Arc<State>,
    next: u64,
) -> Result<u64, StoreError> {
    let path = FileKind::Snapshot.path(&dir, next);
    let temporary = PathBuf::from(format!("{}{TEMPORARY}", path.display()));
    let written = write_entries(&files, &temporary, &state, next).await;
    let bytes = match written {
        Ok(bytes) => bytes,
        Err(error) => {
            // The first error is the one to tell; the next start removes leftovers as well.
            let _ = files.remove(&temporary).await;
            return Err(error);
        }
    };
    files.rename(&temporary, &path).await?;
    remove_before(&files, &dir, next).await?;
    Ok(bytes)
}

async fn write_entries(
    files: &FileThread,
    path: &Path,
    state: &State,
    next: u64,
) -> Result<u64, StoreError> {
    files.remove(path).await?;
    let file = files.create(path).await?;
    let header = FileHeader::new(FileKind::Snapshot, next, state.revision);
    let mut end = FileHeader::BYTES as u64;
    let mut frame = Frame::in_buffer(files.write(&file, header.encode(), 0).await?);
    let mut entries = 0;
    for stored in state.map.values().filter(|stored| stored.durable) {
        record::put_entry(frame.payload(), &stored.entry);
        entries += 1;
        if frame.payload_bytes() >= CHUNK_BYTES {
            let bytes = frame.seal(state.revision, header.salt);
            let len = bytes.len() as u64;
            frame = Frame::in_buffer(files.write(&file, bytes, end).await?);
            end += len;
        }
    }
    record::put_end(frame.payload(), entries);
    let bytes = frame.seal(state.revision, header.salt);
    let len = bytes.len() as u64;
    files.write(&file, bytes, end).await?;
    files.sync(&file).await?;
    Ok(end + len)
}

/// Removes the files that `snapshot-<next>` replaces. The snapshots go last: whatever is left
/// by a crash in between is removed by the next start.
pub(crate) async fn remove_before(
    files: &FileThread,
    dir: &Path,
    next: u64,
) -> Result<(), StoreError> {
    let listing = Listing::read(dir)?;
    for sequence in listing
        .journals
        .into_iter()
        .filter(|sequence| *sequence < next)
    {
        files.remove(&FileKind::Journal.path(dir, sequence)).await?;
    }
    for sequence in listing
        .snapshots
        .into_iter()
        .filter(|sequence| *sequence < next)
    {
        files
            .remove(&FileKind::Snapshot.path(dir, sequence))
            .await?;
    }
    Ok(())
}
