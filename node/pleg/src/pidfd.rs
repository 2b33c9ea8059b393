//! Ends of containers by a descriptor of each first process (Linux 5.3).
//!
//! ```text
//! relist: what runs ──┐                 ┌── the runtime tells the first process
//! worker: it runs   ──┴─▶ to look for ──┴─▶ watched ──(readable)──▶ died; the worker asks how
//!                              ▲ └────────▶ blind: named, and seen by a relist each second
//!                              └────────────┘ tried again with each list
//! ```
//!
//! One task: the descriptors are in one epoll instance, which is itself waited for. A container
//! that the runtime hangs on costs one of a few look-ups until its limit, and no other container
//! waits behind those that hung before.

pub(crate) mod process;
mod queue;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::LifecycleSource;
use swiftlet_model::runtime::{ProcessOf, RuntimeEvents};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::PlegError;
use crate::teller::{Report, Teller};

use process::Found;
use queue::LookUps;

/// Most processes that are watched: more containers than a node runs, and fewer than the
/// descriptors that the node may hold.
const WATCHED_MAX: usize = 8192;

/// Shortest time between two words on what cannot be watched: a burst of failures is told as one.
const TOLD_PAUSE: Duration = Duration::from_secs(1);

/// Containers that one line of the log names.
const NAMED_MAX: usize = 16;

/// Ends that one system call answers.
const READY_BATCH: usize = 64;

/// A container or sandbox whose first process is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) container: ContainerId,
    pub(crate) pod: PodUid,
    pub(crate) of: ProcessOf,
}

/// What runs, as the newest list says.
pub(crate) type Running = Arc<Vec<Wanted>>;

/// An epoll instance that can be waited for.
struct Instance(Epoll);

impl AsRawFd for Instance {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

struct Watched {
    wanted: Wanted,
    /// Closing it takes it out of the epoll instance.
    _process: OwnedFd,
}

type LookUp = BoxFuture<'static, (Wanted, Result<Found, PlegError>)>;

/// The task's state.
pub(crate) struct Watcher {
    runtime: Arc<dyn RuntimeEvents>,
    teller: Teller,
    running: watch::Receiver<Running>,
    relist_now: Arc<Notify>,
    epoll: AsyncFd<Instance>,
    /// By the number under which the epoll instance knows it.
    watched: HashMap<u64, Watched>,
    numbers: HashMap<ContainerId, u64>,
    next: u64,
    queue: LookUps,
    in_flight: FuturesUnordered<LookUp>,
    /// Containers of which it is not told yet that they cannot be watched.
    failures: Vec<(Wanted, PlegError)>,
    /// When such may be told again.
    tell_at: Instant,
}

/// Everything that wakes the task.
enum Event {
    Ended(Vec<u64>),
    Found(Wanted, Result<Found, PlegError>),
    Started(Wanted),
    Listed,
    /// It is time to tell what cannot be watched.
    Due,
    Gone,
}

impl Watcher {
    /// Tries whether the kernel has pidfds.
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeEvents>,
        teller: Teller,
        running: watch::Receiver<Running>,
        relist_now: Arc<Notify>,
    ) -> Result<Self, PlegError> {
        process::probe()?;
        let failed = |call| move |source| PlegError::Pidfd { call, source };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| failed("epoll_create1")(error.into()))?;
        let epoll = registered(epoll).map_err(failed("epoll_ctl"))?;
        Ok(Self {
            runtime,
            teller,
            running,
            relist_now,
            epoll,
            watched: HashMap::new(),
            numbers: HashMap::new(),
            next: 0,
            queue: LookUps::default(),
            in_flight: FuturesUnordered::new(),
            failures: Vec::new(),
            tell_at: Instant::now(),
        })
    }

    /// Watches until the kernel refuses, and answers why; `None` when the sync loop is gone.
    pub(crate) async fn run(mut self, starts: &mut mpsc::Receiver<Wanted>) -> Option<PlegError> {
        self.listed();
        loop {
            self.begin_look_ups();
            match self.next_event(starts).await {
                Ok(Event::Ended(numbers)) => {
                    for number in numbers {
                        self.ended(number).await?;
                    }
                }
                Ok(Event::Found(wanted, found)) => self.found(wanted, found).await?,
                Ok(Event::Started(wanted)) => self.want(wanted),
                Ok(Event::Listed) => self.listed(),
                Ok(Event::Due) => (),
                Ok(Event::Gone) => return None,
                Err(error) => return Some(error),
            }
            if self.queue.has_changed() && Instant::now() >= self.tell_at {
                self.tell_degraded();
            }
        }
    }

    /// The whole set is copied, so not with each container of a burst.
    fn tell_degraded(&mut self) {
        self.tell_at = Instant::now() + TOLD_PAUSE;
        self.teller.health.set_degraded(self.queue.degraded());
        let failures = std::mem::take(&mut self.failures);
        let Some((_, error)) = failures.first() else {
            return;
        };
        let names = failures.iter().take(NAMED_MAX);
        let names = names.map(|(wanted, _)| format!("{} of {}", wanted.container, wanted.pod));
        let containers = names.collect::<Vec<_>>().join(", ");
        let (count, error) = (failures.len(), error.with_causes());
        tracing::warn!(
            count,
            containers,
            error,
            "only the relist sees these containers"
        );
        // From now on it looks each second.
        self.relist_now.notify_one();
    }

    /// Ends come first: they are what all this is for.
    async fn next_event(
        &mut self,
        starts: &mut mpsc::Receiver<Wanted>,
    ) -> Result<Event, PlegError> {
        let failed = |source| PlegError::Pidfd {
            call: "epoll_wait",
            source,
        };
        let ended = self
            .epoll
            .async_io(Interest::READABLE, |epoll| ready(&epoll.0));
        Ok(tokio::select! {
            biased;
            ended = ended => Event::Ended(ended.map_err(failed)?),
            Some((wanted, found)) = self.in_flight.next() => Event::Found(wanted, found),
            Some(wanted) = starts.recv() => Event::Started(wanted),
            changed = self.running.changed() => match changed {
                Ok(()) => Event::Listed,
                Err(_) => Event::Gone,
            },
            () = sleep_until(self.tell_at), if self.queue.has_changed() => Event::Due,
        })
    }

    fn listed(&mut self) {
        let running = self.running.borrow_and_update().clone();
        self.queue.retain_blind(&running);
        for wanted in running.iter() {
            self.want(wanted.clone());
        }
    }

    fn want(&mut self, wanted: Wanted) {
        if !self.numbers.contains_key(&wanted.container) {
            self.queue.push(wanted);
        }
    }

    fn begin_look_ups(&mut self) {
        while let Some(wanted) = self.queue.begin() {
            let runtime = self.runtime.clone();
            self.in_flight.push(Box::pin(async move {
                let found = process::find(runtime.as_ref(), &wanted).await;
                (wanted, found)
            }));
        }
    }

    async fn found(&mut self, wanted: Wanted, found: Result<Found, PlegError>) -> Option<()> {
        let watched = match found {
            Ok(Found::Ended) => {
                self.queue.done(&wanted.container);
                return self.died(wanted).await;
            }
            Ok(Found::Running(process)) => self.watch(wanted.clone(), process),
            Err(error) => Err(error),
        };
        match watched {
            Ok(()) => self.queue.done(&wanted.container),
            Err(error) => {
                if self.queue.failed(wanted.clone()) {
                    self.failures.push((wanted, error));
                }
            }
        }
        Some(())
    }

    fn watch(&mut self, wanted: Wanted, process: OwnedFd) -> Result<(), PlegError> {
        if self.watched.len() >= WATCHED_MAX {
            return Err(PlegError::TooManyProcesses { max: WATCHED_MAX });
        }
        let number = self.next;
        self.next += 1;
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, number);
        let epoll = &self.epoll.get_ref().0;
        epoll
            .add(&process, readable)
            .map_err(|error| PlegError::Pidfd {
                call: "epoll_ctl",
                source: error.into(),
            })?;
        self.numbers.insert(wanted.container.clone(), number);
        let watched = Watched {
            wanted,
            _process: process,
        };
        self.watched.insert(number, watched);
        Ok(())
    }

    async fn ended(&mut self, number: u64) -> Option<()> {
        let Some(watched) = self.watched.remove(&number) else {
            return Some(());
        };
        self.numbers.remove(&watched.wanted.container);
        self.teller.health.count(|stats| stats.pidfd_ends += 1);
        self.died(watched.wanted).await
    }

    /// How it ended only the runtime knows: the worker asks at once. `None` when the sync loop is
    /// gone.
    async fn died(&mut self, wanted: Wanted) -> Option<()> {
        let report = Report {
            pod: wanted.pod,
            kind: Report::died(wanted.container, None),
            at: Timestamp::now(),
            source: LifecycleSource::Pidfd,
        };
        self.teller.tell(report).await.ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Another source sees them now.
        self.teller.health.set_degraded(BTreeMap::new());
    }
}

#[expect(
    deprecated,
    reason = "the new call is unsafe, which this room must not be; the instance is owned by what \
              is registered and lives as long"
)]
fn registered(epoll: Epoll) -> io::Result<AsyncFd<Instance>> {
    AsyncFd::with_interest(Instance(epoll), Interest::READABLE)
}

fn ready(epoll: &Epoll) -> io::Result<Vec<u64>> {
    let mut events = [EpollEvent::empty(); READY_BATCH];
    let count = epoll.wait(&mut events, EpollTimeout::ZERO)?;
    if count == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(events[..count].iter().map(EpollEvent::data).collect())
}
