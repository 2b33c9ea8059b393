//! Pod lifecycle events: from the kernel, or from the next best source, with a slow relist as the
//! safety net.
//!
//! ```text
//! tracker ──track(pod, cgroup)──▶ tracked ──▶ map TRACKED       kernel: exec, exit, mkdir, rmdir
//!                                    ▲                             │ ring, 8 MiB
//!                                    └───────── ring (a thread) ◀──┘
//!                                                  │
//! sources: runtime's stream, or pidfds ────────────┤ teller, merge: once per container
//! Runtime::list_pods ──▶ relist ───────────────────┴──▶ LifecycleReceiver ──▶ sync loop
//! ```
//!
//! Events are hints: a lost one delays a pod until the next relist and never makes it wrong. The
//! relist runs every [`PlegOptions::relist_interval`], at once when something had to be dropped or
//! the source changes, and every second where no other source works, after a list that failed and
//! until a new stream has brought its first event. Pods that the source cannot see are listed each
//! second by themselves.
//!
//! The kernel programs need Linux 5.8 (ring buffer, CAP_BPF, CAP_PERFMON) and the kernel's BTF,
//! pidfds Linux 5.3; the node must run in the host's pid namespace.
#![forbid(unsafe_code)]

mod adopt;
mod btf;
mod error;
mod health;
mod hierarchy;
mod layout;
mod loader;
mod memory;
mod merge;
mod pidfd;
mod probe;
mod relist;
mod ring;
mod sources;
mod stream;
mod teller;
mod tracked;

#[cfg(test)]
#[path = "../tests/kernel/container.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests against the kernel, which use all of it"
)]
mod container;
#[cfg(test)]
#[path = "../tests/kernel/runtime.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests against the kernel, which use all of it"
)]
mod runtime;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::{LIFECYCLE_QUEUE_MAX, LifecycleReceiver, PodTracker};
use swiftlet_model::runtime::{ProcessOf, RuntimeEvents};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use error::PlegError;
pub use health::{Health, Mode, Source, Stats};
pub use probe::{Probe, probe, probe_pidfd, probe_stream};

use health::HealthWriter;
use hierarchy::Hierarchy;
use merge::Merge;
use pidfd::Wanted;
use relist::Relist;
use ring::{Reader, Stopper};
use sources::{Programs, Sources};
use teller::Teller;
use tracked::TrackedPods;

/// How often the runtime is asked for everything while the kernel's events arrive.
pub const RELIST_INTERVAL: Duration = Duration::from_mins(1);

/// How often it is asked while no other source works, or for what the source cannot see: the
/// kubelet's own period.
pub const RELIST_INTERVAL_FALLBACK: Duration = Duration::from_secs(1);

/// What the event source needs to know.
#[derive(Clone, Debug)]
pub struct PlegOptions {
    /// Where cgroups are mounted: `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// How often to relist while the kernel's events arrive.
    pub relist_interval: Duration,
    /// The one source to use, above the relist; the best that works if not given.
    pub only: Option<Source>,
}

impl Default for PlegOptions {
    fn default() -> Self {
        Self {
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            relist_interval: RELIST_INTERVAL,
            only: None,
        }
    }
}

/// The event source.
#[derive(Debug)]
pub struct Pleg;

impl Pleg {
    /// Loads the kernel programs, or begins with the next source and says why in
    /// [`PlegHandle::mode`]. Must be called inside a tokio runtime; takes some 20 ms.
    pub fn start(
        options: PlegOptions,
        runtime: Arc<dyn RuntimeEvents>,
    ) -> (PlegHandle, LifecycleReceiver) {
        let (events, receiver) = mpsc::channel(LIFECYCLE_QUEUE_MAX);
        let relist_now = Arc::new(Notify::new());
        let teller = Teller {
            merge: Arc::new(Merge::default()),
            events,
            health: HealthWriter::new(),
        };
        for (source, reason) in sources::left_out(options.only) {
            teller.health.pass(source, reason);
        }
        let (tracked, kernel) = match start_kernel(&options, &teller, &relist_now) {
            Ok((tracked, kernel)) => {
                teller.health.use_source(Source::Kernel);
                (tracked, Some(kernel))
            }
            Err(error) => {
                if !matches!(error, PlegError::SwitchedOff) {
                    let why = error.with_causes();
                    tracing::warn!(why, "no events from the kernel; another source is used");
                }
                teller.health.pass(Source::Kernel, error);
                let tracked = TrackedPods::without_kernel(relist_now.clone());
                (Arc::new(tracked), None)
            }
        };
        let (running, newest) = watch::channel(Arc::default());
        let (starts, started) = mpsc::channel(LIFECYCLE_QUEUE_MAX);
        let relist = Relist {
            runtime: runtime.clone(),
            interval: options.relist_interval,
            teller: teller.clone(),
            tracked: tracked.clone(),
            asked: relist_now.clone(),
            running,
        };
        let (stopper, programs, failed) = match kernel {
            Some(kernel) => (Some(kernel.stopper), kernel.programs, Some(kernel.failed)),
            None => (None, Programs::default(), None),
        };
        let health = teller.health.clone();
        let allowed = Source::ALL.into_iter();
        let allowed = allowed.filter(|source| options.only.is_none_or(|only| only == *source));
        let sources = Sources {
            allowed: allowed.collect(),
            kernel: failed,
            programs: programs.clone(),
            runtime,
            teller,
            relist_now: relist_now.clone(),
            running: newest,
            starts: started,
        };
        let inner = Inner {
            tracked,
            health,
            relist_now,
            starts,
            tasks: [tokio::spawn(relist.run()), tokio::spawn(sources.run())],
            stopper,
            programs,
        };
        let inner = Arc::new(inner);
        (PlegHandle { inner }, receiver)
    }
}

/// The kernel's part: attached, and read by its thread.
struct Kernel {
    stopper: Stopper,
    programs: Programs,
    failed: oneshot::Receiver<PlegError>,
}

fn start_kernel(
    options: &PlegOptions,
    teller: &Teller,
    relist_now: &Arc<Notify>,
) -> Result<(Arc<TrackedPods>, Kernel), PlegError> {
    if options.only.is_some_and(|only| only != Source::Kernel) {
        return Err(PlegError::SwitchedOff);
    }
    let hierarchy = Hierarchy::detect(&options.cgroup_root)?;
    let loaded = loader::load(&hierarchy)?;
    let merge = teller.merge.clone();
    let tracked = TrackedPods::new(hierarchy, loaded.map, merge, relist_now.clone());
    let tracked = Arc::new(tracked);
    let (failure, failed) = oneshot::channel();
    let reader = Reader {
        ring: loaded.ring,
        counters: loaded.counters,
        tracked: tracked.clone(),
        teller: teller.clone(),
        relist_now: relist_now.clone(),
        failed: failure,
    };
    let kernel = Kernel {
        stopper: reader.spawn()?,
        programs: Programs::new(loaded.programs),
        failed,
    };
    Ok((tracked, kernel))
}

/// The running event source. The last clone that goes stops it and detaches the kernel programs.
#[derive(Clone)]
pub struct PlegHandle {
    inner: Arc<Inner>,
}

struct Inner {
    tracked: Arc<TrackedPods>,
    health: HealthWriter,
    relist_now: Arc<Notify>,
    starts: mpsc::Sender<Wanted>,
    tasks: [JoinHandle<()>; 2],
    stopper: Option<Stopper>,
    programs: Programs,
}

impl PlegHandle {
    /// Where events come from, and why if it is not the kernel.
    pub fn mode(&self) -> Mode {
        self.inner.health.read().mode
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.inner.health.read().stats
    }

    /// Mode and counters, as they change.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.inner.health.subscribe()
    }

    /// Compares with the runtime's lists now.
    pub fn relist_now(&self) {
        self.inner.relist_now.notify_one();
    }
}

impl PodTracker for PlegHandle {
    fn track(&self, pod: &PodUid, cgroup: &str) {
        let result = self.inner.tracked.track(pod, cgroup);
        if let Err(error) = &result {
            tracing::warn!(%pod, cgroup, %error, "only the relist sees this pod");
        }
        self.inner
            .health
            .set_blind_pods(self.inner.tracked.blind_pods());
        if result.is_err() {
            // From now on it looks each second.
            self.relist_now();
        }
    }

    fn untrack(&self, pod: &PodUid) {
        self.inner.tracked.untrack(pod);
        self.inner
            .health
            .set_blind_pods(self.inner.tracked.blind_pods());
    }

    fn runs(&self, pod: &PodUid, container: &ContainerId, process: ProcessOf) {
        if self.inner.health.source() != Source::Pidfd {
            return;
        }
        let wanted = Wanted {
            container: container.clone(),
            pod: pod.clone(),
            of: process,
        };
        if self.inner.starts.try_send(wanted).is_err() {
            // The list has it too.
            self.inner.relist_now.notify_one();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Some(stopper) = &self.stopper {
            stopper.stop();
        }
        self.programs.detach();
    }
}
