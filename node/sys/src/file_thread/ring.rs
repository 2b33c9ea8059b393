//! The thread with a ring.

use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::File;

use super::plain::{Plain, failed, perform_rare};
use super::request::{Request, Table};
use super::{FileError, IN_FLIGHT_MAX};

/// An open file: its descriptor for plain calls and another one for the ring.
struct Ringed {
    plain: Rc<Plain>,
    file: File,
}

impl AsRef<Plain> for Rc<Ringed> {
    fn as_ref(&self) -> &Plain {
        &self.plain
    }
}

/// Makes the ring and tries it: a kernel that has rings may still refuse reads (before 5.6)
/// or the whole call (`io_uring_disabled`, seccomp).
pub(super) fn start() -> io::Result<tokio_uring::Runtime> {
    let runtime = tokio_uring::Runtime::new(&tokio_uring::builder())?;
    runtime.block_on(async {
        let file = File::from_std(fs::File::open("/dev/zero")?);
        let (read, _) = file.read_at(vec![0_u8; 1], 0).await;
        read?;
        file.close().await
    })?;
    Ok(runtime)
}

/// Serves requests side by side until the last handle is gone.
pub(super) async fn serve(mut queue: mpsc::Receiver<Request>) {
    let mut table = Table::new();
    let mut in_flight = JoinSet::new();
    while let Some(request) = queue.recv().await {
        while in_flight.try_join_next().is_some() {}
        if in_flight.len() >= IN_FLIGHT_MAX {
            in_flight.join_next().await;
        }
        perform(request, &mut table, &mut in_flight);
    }
    // What was accepted is carried out, even if nobody waits for it any more.
    while in_flight.join_next().await.is_some() {}
}

fn perform(request: Request, table: &mut Table<Rc<Ringed>>, in_flight: &mut JoinSet<()>) {
    // An answer that nobody waits for is dropped.
    match request {
        Request::Write {
            file,
            bytes,
            offset,
            sync,
            reply,
        } => match table.get(file) {
            Ok(file) => {
                let file = Rc::clone(file);
                in_flight.spawn_local(async move {
                    let _ = reply.send(write(&file, bytes, offset, sync).await);
                });
            }
            Err(error) => drop(reply.send(Err(error))),
        },
        Request::Sync { file, reply } => match table.get(file) {
            Ok(file) => {
                let file = Rc::clone(file);
                in_flight.spawn_local(async move {
                    let done = file.file.sync_data().await;
                    let _ = reply.send(done.map_err(failed("fdatasync", &file.plain.path)));
                });
            }
            Err(error) => drop(reply.send(Err(error))),
        },
        Request::Read { path, reply } => {
            in_flight.spawn_local(async move {
                let _ = reply.send(read(&path).await.map_err(failed("read", &path)));
            });
        }
        rare => perform_rare(rare, table, |plain| {
            let file = plain.file.try_clone().map_err(failed("dup", &plain.path))?;
            Ok(Rc::new(Ringed {
                plain,
                file: File::from_std(file),
            }))
        }),
    }
}

async fn write(
    file: &Ringed,
    bytes: Vec<u8>,
    offset: u64,
    sync: bool,
) -> Result<Vec<u8>, FileError> {
    let (done, bytes) = if bytes.is_empty() {
        // The ring's buffers must not be empty.
        (Ok(()), bytes)
    } else {
        file.file.write_all_at(bytes, offset).await
    };
    done.map_err(failed("write", &file.plain.path))?;
    if sync {
        file.file
            .sync_data()
            .await
            .map_err(failed("fdatasync", &file.plain.path))?;
    }
    Ok(bytes)
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let plain = fs::File::open(path)?;
    let size = usize::try_from(plain.metadata()?.len()).map_err(io::Error::other)?;
    let file = File::from_std(plain);
    // One byte more than expected, so that the end is seen without growing the buffer.
    let mut bytes = Vec::with_capacity(size.saturating_add(1));
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len().max(4096));
        }
        let filled = bytes.len();
        let (read, slice) = file.read_at(bytes.slice(filled..), filled as u64).await;
        bytes = slice.into_inner();
        if read? == 0 {
            file.close().await?;
            return Ok(bytes);
        }
    }
}
