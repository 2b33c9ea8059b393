//! The one writer: owns the state, and is the only one that publishes it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::compact::write_snapshot;
use crate::draft::{Draft, Drafted};
use crate::journal::Journal;
use crate::journal::frame::Frame;
use crate::lock::DirLock;
use crate::snapshot::State;
use crate::{Entry, Limits, Op, Revision, StoreError, WriteError};

/// What comes through the queue.
#[derive(Debug)]
pub(crate) enum Message {
    /// Carry this out.
    Write {
        op: Op,
        reply: oneshot::Sender<Result<Entry, WriteError>>,
    },
    /// Finish, and say so.
    Shutdown { reply: oneshot::Sender<()> },
}

/// The files of a durable store.
pub(crate) struct Disk {
    pub(crate) journal: Journal,
    pub(crate) lock: DirLock,
}

/// A write that waits for its answer.
struct Pending {
    op: Op,
    reply: oneshot::Sender<Result<Entry, WriteError>>,
}

/// Everything that can wake the writer.
enum Event {
    /// Writes; they share one sync.
    Batch(Vec<Pending>),
    /// A snapshot file is finished, or was given up.
    Compacted(Result<u64, StoreError>),
    /// Nobody can send any more, and the queue is empty.
    Closed,
}

pub(crate) struct Writer {
    state: Arc<ArcSwap<State>>,
    publisher: watch::Sender<Revision>,
    queue: mpsc::Receiver<Message>,
    limits: Limits,
    disk: Option<Disk>,
    compaction: Option<JoinHandle<Result<u64, StoreError>>>,
    /// Who waits for the end.
    closing: Vec<oneshot::Sender<()>>,
}

impl Writer {
    pub(crate) fn new(
        state: Arc<ArcSwap<State>>,
        publisher: watch::Sender<Revision>,
        queue: mpsc::Receiver<Message>,
        limits: Limits,
        disk: Option<Disk>,
    ) -> Self {
        Self {
            state,
            publisher,
            queue,
            limits,
            disk,
            compaction: None,
            closing: Vec::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            match self.next_event().await {
                Event::Batch(batch) => self.handle_batch(batch).await,
                Event::Compacted(result) => self.handle_compacted(result),
                Event::Closed => break,
            }
        }
        if let Some(compaction) = self.compaction.take() {
            // It still writes into the directory; the lock is held until it has ended.
            self.handle_compacted(joined(compaction.await));
        }
        // The lock goes before the answer: who waited for it may open the directory at once.
        if let Some(Disk { journal, lock }) = self.disk.take() {
            drop(journal);
            drop(lock);
        }
        for reply in self.closing {
            // Whoever does not wait any more has no need to know.
            let _ = reply.send(());
        }
    }

    /// Waits for the next event. A finished snapshot comes first: it is rare and costs nothing.
    async fn next_event(&mut self) -> Event {
        tokio::select! {
            biased;
            result = finished(&mut self.compaction) => {
                self.compaction = None;
                Event::Compacted(result)
            }
            message = self.queue.recv() => match message {
                Some(message) => Event::Batch(self.collect(message)),
                None => Event::Closed,
            },
        }
    }

    /// Takes what else is waiting, up to the limits of a batch. Whatever arrives while a batch
    /// is on its way to the disk makes up the next one, so a batch is never waited for.
    fn collect(&mut self, first: Message) -> Vec<Pending> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Write { op, reply } => {
                    bytes += op.size_bytes();
                    batch.push(Pending { op, reply });
                }
                Message::Shutdown { reply } => {
                    self.queue.close();
                    self.closing.push(reply);
                }
            }
            let full = batch.len() >= self.limits.batch_ops || bytes >= self.limits.batch_bytes;
            next = if full {
                None
            } else {
                self.queue.try_recv().ok()
            };
        }
        batch
    }

    async fn handle_batch(&mut self, batch: Vec<Pending>) {
        let state = self.state.load_full();
        let journalled = self.disk.is_some();
        let mut draft = Draft::new(&state, self.frame(), &self.limits, journalled);
        let answers: Vec<_> = batch
            .iter()
            .map(|pending| draft.apply(&pending.op))
            .collect();
        let drafted = draft.finish();
        match self.commit(&state, drafted).await {
            Ok(()) => answer(batch, answers),
            Err(error) => self.refuse(&state, batch, error).await,
        }
        self.start_compaction().await;
    }

    /// The disk refused the batch: what needs it gets the error, what does not (leases) is
    /// carried out all the same, on the state as it was before.
    async fn refuse(&mut self, state: &State, batch: Vec<Pending>, error: StoreError) {
        tracing::error!(%error, "the journal cannot be written");
        let error = Arc::new(error);
        let frame = self.frame();
        let mut draft = Draft::new(state, frame, &self.limits, true);
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        let mut answers = Vec::new();
        for pending in batch {
            if draft.is_durable(&pending.op) {
                refused.push(pending);
            } else {
                answers.push(draft.apply(&pending.op));
                accepted.push(pending);
            }
        }
        let drafted = draft.finish();
        if self.commit(state, drafted).await.is_ok() {
            answer(accepted, answers);
        } else {
            refused.extend(accepted);
        }
        let answers: Vec<_> = refused
            .iter()
            .map(|_| Err(WriteError::Storage(Arc::clone(&error))))
            .collect();
        answer(refused, answers);
    }

    fn frame(&mut self) -> Frame {
        match &mut self.disk {
            Some(disk) => disk.journal.frame(),
            None => Frame::in_buffer(Vec::new()),
        }
    }

    /// Makes a batch durable, then visible: state first, wake-up second (see `Watch::next`).
    async fn commit(&mut self, before: &State, drafted: Drafted) -> Result<(), StoreError> {
        let Drafted {
            map,
            log,
            revision,
            frame,
        } = drafted;
        let (mut journal_bytes, mut syncs) = (0, 0);
        if let Some(disk) = &mut self.disk {
            disk.journal.commit(frame, revision).await?;
            (journal_bytes, syncs) = (disk.journal.bytes(), disk.journal.syncs());
        }
        if revision > before.revision {
            self.state.store(Arc::new(State {
                map,
                log,
                revision,
                journal_bytes,
                syncs,
            }));
            self.publisher.send_replace(revision);
        }
        Ok(())
    }

    /// Begins a new journal file and a snapshot of everything before it, if it is time.
    async fn start_compaction(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        if self.compaction.is_some() || !disk.journal.is_long() {
            return;
        }
        let state = self.state.load_full();
        match disk.journal.rotate(state.revision).await {
            Ok(next) => {
                let (files, dir) = (disk.journal.files().clone(), disk.journal.dir().into());
                self.compaction = Some(tokio::spawn(write_snapshot(files, dir, state, next)));
            }
            Err(error) => tracing::error!(%error, "cannot begin a new journal file"),
        }
    }

    fn handle_compacted(&mut self, result: Result<u64, StoreError>) {
        match (result, &mut self.disk) {
            (Ok(bytes), Some(disk)) => disk.journal.snapshot_written(bytes),
            (Ok(_), None) => (),
            // Nothing is lost: the older files are still there, and the next one tries again.
            (Err(error), _) => tracing::error!(%error, "cannot write a snapshot file"),
        }
    }
}

/// Waits for the snapshot that is being written; for ever if there is none.
async fn finished(
    compaction: &mut Option<JoinHandle<Result<u64, StoreError>>>,
) -> Result<u64, StoreError> {
    match compaction {
        Some(task) => joined(task.await),
        None => std::future::pending().await,
    }
}

fn joined(
    result: Result<Result<u64, StoreError>, tokio::task::JoinError>,
) -> Result<u64, StoreError> {
    // It is never cancelled but by the end of the runtime, which ends the writer as well.
    result.unwrap_or_else(|_| Err(swiftlet_sys::file_thread::FileError::Gone.into()))
}

fn answer(batch: Vec<Pending>, answers: Vec<Result<Entry, WriteError>>) {
    for (pending, answer) in batch.into_iter().zip(answers) {
        // Whoever dropped the call does not need the answer.
        let _ = pending.reply.send(answer);
    }
}
