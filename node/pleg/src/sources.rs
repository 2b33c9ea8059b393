//! Which source tells: the best that works, chosen at the start and whenever one fails.
//!
//! ```text
//! kernel programs ──cannot load, ring dies──▶ runtime's stream ◀──(tried again)──┐
//!                                                  │ unsupported, broken         │
//!                                                  ▼                             │
//!                                               pidfds ──kernel refuses──▶ relist alone
//! ```
//!
//! A stream that breaks is opened again while the next source tells; a runtime that has none is
//! not asked again. Each change is followed by a relist: what happened in between is found by it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use swiftlet_model::runtime::{RuntimeError, RuntimeEvents};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::PlegError;
use crate::health::{HealthWriter, Source};
use crate::pidfd::{Running, Wanted, Watcher, process};
use crate::stream::{self, Opened};
use crate::teller::Teller;

/// First wait before a broken stream is opened again.
const REOPEN_MIN: Duration = Duration::from_millis(100);

/// Longest wait: the runtime may be away for long, and a try costs one call.
const REOPEN_MAX: Duration = Duration::from_secs(5);

/// A stream that lasted as long as this begins anew with [`REOPEN_MIN`].
const STEADY: Duration = Duration::from_secs(10);

/// The kernel programs: attached for as long as they are in here.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    /// Taken by whoever is first: the handle that goes, or the failure of the ring.
    attached: Arc<Mutex<Option<aya::Ebpf>>>,
}

impl Programs {
    pub(crate) fn new(programs: aya::Ebpf) -> Self {
        Self {
            attached: Arc::new(Mutex::new(Some(programs))),
        }
    }

    pub(crate) fn detach(&self) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        drop(attached.take());
    }
}

/// Everything that the task works with.
pub(crate) struct Sources {
    /// Which of the sources below the kernel's may be used.
    pub(crate) allowed: Vec<Source>,
    /// Why the ring ends, if it does; `None` if the programs do not run.
    pub(crate) kernel: Option<oneshot::Receiver<PlegError>>,
    pub(crate) programs: Programs,
    pub(crate) runtime: Arc<dyn RuntimeEvents>,
    pub(crate) teller: Teller,
    pub(crate) relist_now: Arc<Notify>,
    pub(crate) running: watch::Receiver<Running>,
    /// Containers that the worker has started.
    pub(crate) starts: mpsc::Receiver<Wanted>,
}

impl Sources {
    /// Runs until the sync loop is gone.
    pub(crate) async fn run(mut self) {
        if let Some(kernel) = self.kernel.take() {
            // The ring's thread says why it ends; one that panicked says nothing.
            let error = kernel.await.unwrap_or(PlegError::RingLost);
            if self.teller.events.is_closed() {
                return;
            }
            self.programs.detach();
            self.gave_up(Source::Kernel, error);
        }
        let mut stream = self
            .allowed
            .contains(&Source::Runtime)
            .then_some(Duration::ZERO);
        loop {
            let opened = match self.first_try(&mut stream).await {
                Some(opened) => opened,
                None => match self.below(&mut stream).await {
                    Some(opened) => opened,
                    None => return,
                },
            };
            self.teller.health.use_source(Source::Runtime);
            self.relist_now.notify_one();
            let since = Instant::now();
            let Some(error) = opened.follow(&self.teller, &self.relist_now).await else {
                return;
            };
            self.gave_up(Source::Runtime, error);
            let steady = since.elapsed() >= STEADY;
            stream = stream.map(|pause| if steady { REOPEN_MIN } else { longer(pause) });
        }
    }

    /// Before any other source is begun: most runtimes that have a stream take the first try.
    async fn first_try(&mut self, stream: &mut Option<Duration>) -> Option<Opened> {
        if *stream != Some(Duration::ZERO) {
            return None;
        }
        try_stream(self.runtime.as_ref(), &self.teller.health, stream).await
    }

    /// The next sources, until there is a stream; `None` when the sync loop is gone.
    async fn below(&mut self, stream: &mut Option<Duration>) -> Option<Opened> {
        let mut pidfd = self.allowed.contains(&Source::Pidfd);
        loop {
            if !pidfd {
                self.teller.health.use_source(Source::Relist);
                self.relist_now.notify_one();
            }
            let lower = watch_processes(
                pidfd,
                &self.runtime,
                &self.teller,
                &self.running,
                &mut self.starts,
                &self.relist_now,
            );
            let reopened = reopen(self.runtime.as_ref(), &self.teller.health, stream);
            let error = tokio::select! {
                opened = reopened => return Some(opened),
                error = lower => error?,
            };
            self.gave_up(Source::Pidfd, error);
            self.allowed.retain(|source| *source != Source::Pidfd);
            pidfd = false;
        }
    }

    fn gave_up(&self, source: Source, error: PlegError) {
        let why = error.with_causes();
        tracing::warn!(%source, why, "no more lifecycle events from this source");
        self.teller.health.pass(source, error);
        self.relist_now.notify_one();
    }
}

/// Watches by pidfd, and answers why no longer; `None` when the sync loop is gone. Without pidfds
/// it waits for that alone.
async fn watch_processes(
    pidfd: bool,
    runtime: &Arc<dyn RuntimeEvents>,
    teller: &Teller,
    running: &watch::Receiver<Running>,
    starts: &mut mpsc::Receiver<Wanted>,
    relist_now: &Arc<Notify>,
) -> Option<PlegError> {
    if !pidfd {
        teller.events.closed().await;
        return None;
    }
    tokio::select! {
        checked = same_namespace(runtime.as_ref(), &teller.health, relist_now) => {
            if let Err(error) = checked {
                return Some(error);
            }
        }
        () = teller.events.closed() => return None,
    }
    let (runtime, teller) = (runtime.clone(), teller.clone());
    let health = teller.health.clone();
    match Watcher::new(runtime, teller, running.clone(), relist_now.clone()) {
        Ok(watcher) => {
            health.use_source(Source::Pidfd);
            relist_now.notify_one();
            watcher.run(starts).await
        }
        Err(error) => Some(error),
    }
}

/// Waits until the runtime has answered, from the pid namespace of this program.
async fn same_namespace(
    runtime: &dyn RuntimeEvents,
    health: &HealthWriter,
    relist_now: &Notify,
) -> Result<(), PlegError> {
    loop {
        match process::same_namespace(runtime).await {
            Err(error @ (PlegError::NoAnswer { .. } | PlegError::Silent { .. })) => {
                health.pass(Source::Pidfd, error);
                if health.source() != Source::Relist {
                    health.use_source(Source::Relist);
                    relist_now.notify_one();
                }
                sleep(REOPEN_MAX).await;
            }
            answer => return answer,
        }
    }
}

/// Tries until there is a stream; for ever where the runtime has none.
async fn reopen(
    runtime: &dyn RuntimeEvents,
    health: &HealthWriter,
    stream: &mut Option<Duration>,
) -> Opened {
    loop {
        let Some(pause) = *stream else {
            let never: Infallible = std::future::pending().await;
            match never {}
        };
        sleep(pause).await;
        if let Some(opened) = try_stream(runtime, health, stream).await {
            return opened;
        }
    }
}

/// `stream` is the wait before the next try; `None` if there is nothing to try.
async fn try_stream(
    runtime: &dyn RuntimeEvents,
    health: &HealthWriter,
    stream: &mut Option<Duration>,
) -> Option<Opened> {
    match stream::open(runtime).await {
        Ok(opened) => Some(opened),
        Err(error) => {
            let unsupported = matches!(
                error,
                PlegError::Stream {
                    source: RuntimeError::Unsupported { .. }
                }
            );
            *stream = (!unsupported).then(|| stream.map_or(REOPEN_MIN, longer));
            health.pass(Source::Runtime, error);
            None
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(REOPEN_MIN, REOPEN_MAX)
}

/// What the options leave out, as reasons.
pub(crate) fn left_out(only: Option<Source>) -> BTreeMap<Source, PlegError> {
    let Some(only) = only else {
        return BTreeMap::new();
    };
    Source::ALL
        .into_iter()
        .filter(|source| *source != only && *source != Source::Relist)
        .map(|source| (source, PlegError::SwitchedOff))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::FakeRuntime;
    use swiftlet_model::lifecycle::{LifecycleKind, LifecycleReceiver, LifecycleSource};
    use swiftlet_model::runtime::ContainerEventKind;

    /// On the kernel's events, whose reader the test plays.
    fn on_kernel(
        runtime: Arc<FakeRuntime>,
    ) -> (Sources, oneshot::Sender<PlegError>, LifecycleReceiver) {
        let (events, receiver) = mpsc::channel(16);
        let (failure, failed) = oneshot::channel();
        let teller = Teller {
            merge: Arc::default(),
            events,
            health: HealthWriter::new(),
        };
        teller.health.use_source(Source::Kernel);
        let sources = Sources {
            allowed: Source::ALL.into(),
            kernel: Some(failed),
            programs: Programs::default(),
            runtime,
            teller,
            relist_now: Arc::default(),
            running: watch::channel(Arc::default()).1,
            starts: mpsc::channel(1).1,
        };
        (sources, failure, receiver)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn when_the_ring_cannot_be_read_any_more_the_next_source_takes_over() {
        for reason in [Some(PlegError::StreamEnded), None] {
            let runtime = Arc::new(FakeRuntime::default());
            let (sources, failure, mut events) = on_kernel(runtime.clone());
            let mut health = sources.teller.health.subscribe();
            let relist_now = sources.relist_now.clone();
            let task = tokio::spawn(sources.run());
            match reason {
                Some(reason) => failure.send(reason).expect("it is listened to"),
                // The thread has panicked.
                None => drop(failure),
            }
            let next = health.wait_for(|health| health.mode.source == Source::Runtime);
            let passed = next.await.expect("it lives").mode.passed.clone();
            assert!(passed.contains_key(&Source::Kernel), "{passed:?}");
            relist_now.notified().await;
            runtime.tell(&"p".into(), "c", ContainerEventKind::Stopped, None);
            let event = events.recv().await.expect("it lives");
            assert_eq!(event.source, LifecycleSource::Runtime);
            assert!(matches!(event.kind, LifecycleKind::ContainerDied { .. }));
            task.abort();
        }
    }
}
