//! Reads a log on while it is written, through rotations, until its container has ended.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use swiftlet_model::BoxFuture;
use swiftlet_model::runtime::{ContainerState, RuntimeError};
use swiftlet_proto::log_options::LogOptions;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::folder::LogFolder;
use super::source::{Progress, Source};
use super::watch::{Changes, LogWatch};

/// Pieces that wait for the reader.
const PIECES_MAX: usize = 2;

/// Waits between two questions whether a container whose log was closed has ended: the runtime
/// closes the log before it says so. They grow while it still calls the container running, which
/// means that the runtime itself is being restarted.
const END_WAIT_MIN: Duration = Duration::from_millis(2);
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long nothing may be told of a log before the runtime is asked whether its container still
/// runs: somebody else may hold the log's other end open after the container has ended.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// How long a file that has been moved away may still be written to before it counts as finished,
/// if nothing tells that it is closed.
const OLD_FILE_LIMIT: Duration = Duration::from_millis(500);

/// Asks the runtime what the container does.
pub(crate) type StateOf =
    Box<dyn Fn() -> BoxFuture<'static, Result<ContainerState, RuntimeError>> + Send + Sync>;

/// A log that can be read.
pub(crate) struct Log {
    /// Where the runtime writes it.
    pub(crate) folder: Arc<LogFolder>,
    /// The name of the file that it writes to.
    pub(crate) name: String,
    /// What the container does whose log it is.
    pub(crate) state: StateOf,
    /// Ends following.
    pub(crate) shutdown: CancellationToken,
}

/// The text, piece by piece. An error in the midst of it ends it.
pub(crate) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// Opens a log and begins to read it. Reading ends when the receiver is dropped.
pub(crate) async fn open(log: Log, options: LogOptions) -> io::Result<Pieces> {
    // Before the first look at container and file, so that nothing happens in between.
    let watch = options
        .follow
        .then(|| LogWatch::new(&log.folder, &log.name))
        .transpose()?;
    let (folder, name) = (Arc::clone(&log.folder), log.name.clone());
    let open = move || Source::open(&folder, &name, &options, Timestamp::now());
    let source = blocking(open).await?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        let reader = Reader {
            log,
            source: Some(source),
            sender: sender.clone(),
            seen: Changes::default(),
        };
        let shutdown = reader.log.shutdown.clone();
        let outcome = shutdown.run_until_cancelled_owned(reader.run(watch)).await;
        if let Some(Err(error)) = outcome {
            // The reader is told by a body that breaks off; one that is gone is not told.
            let _ = sender.send(Err(error)).await;
        }
    });
    Ok(receiver)
}

struct Reader {
    log: Log,
    /// Away while a thread reads it.
    source: Option<Source>,
    sender: mpsc::Sender<io::Result<Bytes>>,
    /// What the kernel told and nobody has acted on yet.
    seen: Changes,
}

/// Why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// All that is written has been read.
    AtEnd,
    /// All of a file that has been moved away has been read, and there is a newer one.
    Rotated,
    /// The reader has enough, or is gone.
    Done,
}

impl Reader {
    async fn run(mut self, watch: Option<LogWatch>) -> io::Result<()> {
        let Some(mut watch) = watch else {
            return self.drain().await.map(drop);
        };
        let mut is_due = true;
        loop {
            match self.drain().await? {
                Pause::Done => return Ok(()),
                Pause::Rotated => {
                    if !self.next_file(&mut watch).await? {
                        return Ok(());
                    }
                    continue;
                }
                Pause::AtEnd => {}
            }
            if (is_due || self.seen.closed) && self.is_over(&mut watch).await? {
                // What was written before it ended is in the file.
                return self.drain().await.map(drop);
            }
            is_due = false;
            if std::mem::take(&mut self.seen.written) {
                continue;
            }
            let before = self.seen;
            if !self.wait(&mut watch, LOOK_AGAIN).await? {
                return Ok(());
            }
            is_due = self.seen == before;
        }
    }

    /// Waits for changes, at most `limit`; `false` if the reader is gone.
    async fn wait(&mut self, watch: &mut LogWatch, limit: Duration) -> io::Result<bool> {
        tokio::select! {
            biased;
            () = self.sender.closed() => Ok(false),
            changes = watch.changes() => {
                self.seen.join(changes?);
                Ok(true)
            }
            () = tokio::time::sleep(limit) => Ok(true),
        }
    }

    /// Goes on to the file that came after the one that has been read. The runtime opens the new
    /// file first and may write to the old one until it closes it.
    async fn next_file(&mut self, watch: &mut LogWatch) -> io::Result<bool> {
        let limit = tokio::time::Instant::now() + OLD_FILE_LIMIT;
        while !self.seen.old_closed && tokio::time::Instant::now() < limit {
            if !self.wait(watch, OLD_FILE_LIMIT).await? {
                return Ok(false);
            }
        }
        self.seen.old_closed = false;
        if self.drain().await? == Pause::Done {
            return Ok(false);
        }
        let Some(mut source) = self.source.take() else {
            return Ok(false);
        };
        self.source = Some(blocking(move || source.advance().map(|()| source)).await?);
        Ok(true)
    }

    /// Whether no more will be written. Of a container whose log was closed the runtime is asked
    /// until it says that it has ended, or something is written.
    async fn is_over(&mut self, watch: &mut LogWatch) -> io::Result<bool> {
        let mut wait = END_WAIT_MIN;
        let is_closed = std::mem::take(&mut self.seen.closed);
        loop {
            match (self.log.state)().await {
                Ok(ContainerState::Exited) => return Ok(true),
                Err(error) if error.is_not_found() => return Ok(true),
                Ok(_) if !is_closed => return Ok(false),
                Ok(_) | Err(_) => {}
            }
            self.seen.written = false;
            if !self.wait(watch, wait).await? {
                return Ok(true);
            }
            if self.seen.written {
                // There is a writer again, or it is closed once more: that is seen after what was
                // written has been read.
                return Ok(false);
            }
            wait = (wait * 2).min(END_WAIT_MAX);
        }
    }

    /// Reads what there is and hands it on.
    async fn drain(&mut self) -> io::Result<Pause> {
        loop {
            let Some(mut source) = self.source.take() else {
                return Ok(Pause::Done);
            };
            let read = move || {
                let read = source.read()?;
                let is_rotated = read.1 == Progress::AtEnd && source.is_rotated();
                Ok((source, read, is_rotated))
            };
            let (source, (text, progress), is_rotated) = blocking(read).await?;
            self.source = Some(source);
            // Of much that is left out nothing is sent: that the reader is gone must be noticed.
            let is_gone = if text.is_empty() {
                self.sender.is_closed()
            } else {
                self.sender.send(Ok(text)).await.is_err()
            };
            if is_gone {
                return Ok(Pause::Done);
            }
            match progress {
                Progress::More => {}
                Progress::AtEnd if is_rotated => return Ok(Pause::Rotated),
                Progress::AtEnd => return Ok(Pause::AtEnd),
                Progress::Full => return Ok(Pause::Done),
            }
        }
    }
}

/// Runs a file call where it may block.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let call = tokio::task::spawn_blocking(call);
    call.await.map_err(io::Error::other)?
}
