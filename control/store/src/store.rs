//! The handle of a store.

use std::sync::Arc;

use arc_swap::ArcSwap;
use swiftlet_sys::file_thread::{FileMode, FileThread};
use tokio::sync::{mpsc, oneshot, watch};

use crate::log::Log;
use crate::recover::{RecoveryReport, recover};
use crate::snapshot::{Map, State};
use crate::writer::{Disk, Message, Writer};
use crate::{
    Durability, Entry, Op, Revision, Snapshot, Stats, StoreError, StoreOptions, TooOld, Watch,
    WriteError,
};

/// A store. A clone is another handle of the same one; when the last is gone, the writer
/// finishes what was accepted and lets go of the directory.
#[derive(Clone, Debug)]
pub struct Store {
    queue: mpsc::Sender<Message>,
    state: Arc<ArcSwap<State>>,
    published: watch::Receiver<Revision>,
    file_mode: Option<FileMode>,
}

impl Store {
    /// Opens the store of a directory, and makes one if there is none. Starts the writer's
    /// task, so it must be called inside of a tokio runtime.
    pub async fn open(options: StoreOptions) -> Result<(Self, RecoveryReport), StoreError> {
        let (map, disk, report, file_mode) = match options.durability {
            Durability::Memory => {
                let revision = Revision::EMPTY;
                (
                    Map::new(),
                    None,
                    RecoveryReport {
                        revision,
                        ..Default::default()
                    },
                    None,
                )
            }
            Durability::Journal => {
                let files = options.files.clone().map_or_else(FileThread::start, Ok)?;
                let mode = files.mode();
                let recovered = recover(&options, files).await?;
                let disk = Disk {
                    journal: recovered.journal,
                    lock: recovered.lock,
                };
                (recovered.map, Some(disk), recovered.report, Some(mode))
            }
        };
        let revision = report.revision;
        let state = Arc::new(ArcSwap::from_pointee(State {
            map,
            log: Log::starting_after(revision),
            revision,
            journal_bytes: disk.as_ref().map_or(0, |disk| disk.journal.bytes()),
            syncs: 0,
        }));
        let (queue, messages) = mpsc::channel(options.limits.queue_ops);
        let (publisher, published) = watch::channel(revision);
        let writer = Writer::new(
            Arc::clone(&state),
            publisher,
            messages,
            options.limits,
            disk,
        );
        tokio::spawn(writer.run());
        Ok((
            Self {
                queue,
                state,
                published,
                file_mode,
            },
            report,
        ))
    }

    /// The store as it is now. One atomic load; never blocks.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state.load_full())
    }

    /// Writes, and waits for room in the queue if it is full. The answer comes after the
    /// journal record is on disk (or at once for [`Durability::Memory`]) and the change is
    /// visible. A call that is dropped may or may not have been carried out.
    pub async fn write(&self, op: Op) -> Result<Entry, WriteError> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Write { op, reply };
        self.queue
            .send(message)
            .await
            .map_err(|_| WriteError::Closed)?;
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    /// Writes like [`Store::write`], but does not wait for room.
    ///
    /// # Errors
    /// [`WriteError::Full`] with the operation if the queue is full.
    pub async fn try_write(&self, op: Op) -> Result<Entry, WriteError> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Message::Write { op, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(WriteError::Closed)),
            Err(mpsc::error::TrySendError::Full(Message::Write { op, .. })) => {
                Err(WriteError::Full(op))
            }
            Err(_) => Err(WriteError::Closed),
        }
    }

    /// Watches the keys that begin with `prefix`, from the first change after `after`.
    ///
    /// # Errors
    /// [`TooOld`] if changes after `after` are not in memory any more; list, and watch from
    /// the list's revision.
    pub fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, TooOld> {
        Watch::new(
            prefix,
            after,
            Arc::clone(&self.state),
            self.published.clone(),
        )
    }

    /// Figures of the store; cheap.
    pub fn stats(&self) -> Stats {
        let state = self.state.load();
        Stats {
            revision: state.revision,
            entries: state.map.len(),
            journal_bytes: state.journal_bytes,
            syncs: state.syncs,
            ring_len: state.log.len(),
        }
    }

    /// How the journal's thread asks the kernel; `None` without a journal.
    pub fn file_mode(&self) -> Option<FileMode> {
        self.file_mode
    }

    /// Finishes the writes that were accepted, refuses further ones and lets go of the
    /// directory. Snapshots stay readable; watches wait for ever. May be called twice.
    pub async fn shutdown(&self) {
        let (reply, done) = oneshot::channel();
        if self.queue.send(Message::Shutdown { reply }).await.is_ok() {
            // Without an answer the writer has ended, which is what was asked for.
            let _ = done.await;
        }
    }
}
