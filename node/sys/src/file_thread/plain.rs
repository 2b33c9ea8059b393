//! The plain calls: all requests where there is no ring, the rare ones where there is.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::sync::mpsc;

use super::FileError;
use super::request::{Request, Table};

/// Mode of the files that are created: what the stores keep is secret.
const FILE_MODE: u32 = 0o600;

/// An open file and its name, which errors carry.
pub(super) struct Plain {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

/// Serves one request after the other until the last handle is gone.
pub(super) fn serve(mut queue: mpsc::Receiver<Request>) {
    let mut table = Table::new();
    while let Some(request) = queue.blocking_recv() {
        perform(request, &mut table);
    }
}

fn perform(request: Request, table: &mut Table<Rc<Plain>>) {
    // An answer that nobody waits for is dropped.
    match request {
        Request::Write {
            file,
            bytes,
            offset,
            sync,
            reply,
        } => {
            let done = table
                .get(file)
                .and_then(|file| write(file, bytes, offset, sync));
            let _ = reply.send(done);
        }
        Request::Sync { file, reply } => {
            let done = table.get(file).and_then(|file| {
                file.file
                    .sync_data()
                    .map_err(failed("fdatasync", &file.path))
            });
            let _ = reply.send(done);
        }
        Request::Read { path, reply } => {
            let _ = reply.send(fs::read(&path).map_err(failed("read", &path)));
        }
        rare => perform_rare(rare, table, Ok),
    }
}

/// The requests that are plain calls with a ring as well. `adopt` makes the table's entry.
pub(super) fn perform_rare<F: AsRef<Plain>>(
    request: Request,
    table: &mut Table<F>,
    adopt: impl Fn(Rc<Plain>) -> Result<F, FileError>,
) {
    match request {
        Request::Open { path, reply } => {
            let file = open(path, OpenOptions::new().create(true));
            let done = file.and_then(|(file, len)| {
                let (id, token) = table.insert(adopt(file)?);
                Ok((id, token, len))
            });
            let _ = reply.send(done);
        }
        Request::Create { path, reply } => {
            let file = open(path, OpenOptions::new().create_new(true));
            let done = file.and_then(|(file, len)| {
                let (id, token) = table.insert(adopt(file)?);
                Ok((id, token, len))
            });
            let _ = reply.send(done);
        }
        Request::Truncate { file, len, reply } => {
            let done = table
                .get(file)
                .and_then(|file| truncate(file.as_ref(), len));
            let _ = reply.send(done);
        }
        Request::WriteAtomic { path, bytes, reply } => {
            let _ = reply.send(write_atomic(&path, &bytes));
        }
        Request::Rename { from, to, reply } => {
            let _ = reply.send(rename(&from, &to));
        }
        Request::Remove { path, reply } => {
            let _ = reply.send(remove(&path));
        }
        Request::Write { .. } | Request::Sync { .. } | Request::Read { .. } => {
            unreachable!("both ways of serving take these themselves")
        }
    }
}

/// Makes an error that names the call and the file.
pub(super) fn failed(call: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_path_buf();
    move |source| FileError::Call { call, path, source }
}

fn open(path: PathBuf, options: &mut OpenOptions) -> Result<(Rc<Plain>, u64), FileError> {
    let file = options
        .read(true)
        .write(true)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(failed("open", &path))?;
    let len = file.metadata().map_err(failed("fstat", &path))?.len();
    Ok((Rc::new(Plain { file, path }), len))
}

fn write(file: &Plain, bytes: Vec<u8>, offset: u64, sync: bool) -> Result<Vec<u8>, FileError> {
    file.file
        .write_all_at(&bytes, offset)
        .map_err(failed("pwrite", &file.path))?;
    if sync {
        file.file
            .sync_data()
            .map_err(failed("fdatasync", &file.path))?;
    }
    Ok(bytes)
}

fn truncate(file: &Plain, len: u64) -> Result<(), FileError> {
    file.file
        .set_len(len)
        .map_err(failed("ftruncate", &file.path))?;
    file.file
        .sync_data()
        .map_err(failed("fdatasync", &file.path))
}

fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path
        .file_name()
        .map_or_else(OsString::new, ToOwned::to_owned);
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&temporary)
        .map_err(failed("open", &temporary))?;
    let written = file
        .write_all(bytes)
        .map_err(failed("write", &temporary))
        .and_then(|()| file.sync_all().map_err(failed("fsync", &temporary)))
        .and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to tell; a leftover is overwritten by the next try.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(failed("rename", from))?;
    // The new name is on disk only when the directory is.
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = File::open(parent).map_err(failed("open", parent))?;
    directory.sync_all().map_err(failed("fsync", parent))
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed("unlink", path)),
    }
}
