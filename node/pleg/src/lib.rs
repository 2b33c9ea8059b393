//! Pod lifecycle events from the kernel, with a slow relist as the safety net.
//!
//! ```text
//! tracker ──track(pod, cgroup)──▶ tracked ──▶ map TRACKED       kernel: exec, exit, mkdir, rmdir
//!                                    ▲                             │ ring, 8 MiB
//!                                    └───────── ring (a thread) ◀──┘
//!                                                  │ merge: once per container
//! Runtime::list_pods ──▶ relist ───────────────────┴──▶ LifecycleReceiver ──▶ sync loop
//! ```
//!
//! Events are hints: a lost one delays a pod until the next relist and never makes it wrong. The
//! relist runs every [`PlegOptions::relist_interval`], at once when the kernel had to drop
//! something, and every second where the kernel programs cannot be used.
//!
//! Needs Linux 5.8 (ring buffer, CAP_BPF, CAP_PERFMON) and the kernel's BTF; the node must run in
//! the host's pid namespace.
#![forbid(unsafe_code)]

mod adopt;
mod btf;
mod error;
mod health;
mod hierarchy;
mod layout;
mod loader;
mod merge;
mod probe;
mod relist;
mod ring;
mod tracked;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_model::ids::PodUid;
use swiftlet_model::lifecycle::{LIFECYCLE_QUEUE_MAX, LifecycleReceiver, PodTracker};
use swiftlet_model::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

pub use error::PlegError;
pub use health::{Health, Mode, Stats};
pub use probe::{Probe, probe};

use health::HealthWriter;
use hierarchy::Hierarchy;
use loader::Loaded;
use merge::Merge;
use relist::Relist;
use ring::{Reader, Stopper};
use tracked::TrackedPods;

/// How often the runtime is asked for everything while the kernel's events arrive.
pub const RELIST_INTERVAL: Duration = Duration::from_mins(1);

/// How often it is asked while they do not: the kubelet's own period.
pub const RELIST_INTERVAL_FALLBACK: Duration = Duration::from_secs(1);

/// Whether to use the kernel programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bpf {
    /// Where the kernel lets us.
    #[default]
    Auto,
    /// Never: relist alone.
    Off,
}

/// What the event source needs to know.
#[derive(Clone, Debug)]
pub struct PlegOptions {
    /// Where cgroups are mounted: `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// How often to relist while the kernel's events arrive.
    pub relist_interval: Duration,
    /// Whether to use the kernel programs.
    pub bpf: Bpf,
}

impl Default for PlegOptions {
    fn default() -> Self {
        Self {
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            relist_interval: RELIST_INTERVAL,
            bpf: Bpf::Auto,
        }
    }
}

/// The event source.
#[derive(Debug)]
pub struct Pleg;

impl Pleg {
    /// Loads the kernel programs, or falls back to the relist and says why in [`PlegHandle::mode`].
    /// Must be called inside a tokio runtime; takes some 20 ms.
    pub fn start(
        options: PlegOptions,
        runtime: Arc<dyn Runtime>,
    ) -> (PlegHandle, LifecycleReceiver) {
        let (events, receiver) = mpsc::channel(LIFECYCLE_QUEUE_MAX);
        let merge = Arc::new(Merge::default());
        let relist_now = Arc::new(Notify::new());
        let health = HealthWriter::new();

        let kernel = match load(&options) {
            Ok(parts) => Some(parts),
            Err(error) => {
                tracing::warn!(%error, "no events from the kernel; the runtime is listed instead");
                health.fall_back(error);
                None
            }
        };
        let (tracked, kernel) = match kernel {
            Some((
                hierarchy,
                Loaded {
                    programs,
                    map,
                    ring,
                    counters,
                },
            )) => {
                let tracked = TrackedPods::new(hierarchy, map, merge.clone(), relist_now.clone());
                (Arc::new(tracked), Some((programs, ring, counters)))
            }
            None => (
                Arc::new(TrackedPods::without_kernel(relist_now.clone())),
                None,
            ),
        };
        let (programs, stopper) = match kernel {
            Some((programs, ring, counters)) => {
                let reader = Reader {
                    ring,
                    counters,
                    tracked: tracked.clone(),
                    merge: merge.clone(),
                    events: events.clone(),
                    health: health.clone(),
                    relist_now: relist_now.clone(),
                };
                (Some(programs), reader.spawn(&health))
            }
            None => (None, None),
        };
        let relist = Relist {
            runtime,
            interval: options.relist_interval,
            merge,
            tracked: tracked.clone(),
            events,
            health: health.clone(),
            asked: relist_now.clone(),
        };
        let inner = Inner {
            tracked,
            health,
            relist_now,
            relist: tokio::spawn(relist.run()),
            stopper,
            _programs: programs,
        };
        (
            PlegHandle {
                inner: Arc::new(inner),
            },
            receiver,
        )
    }
}

fn load(options: &PlegOptions) -> Result<(Hierarchy, Loaded), PlegError> {
    if options.bpf == Bpf::Off {
        return Err(PlegError::SwitchedOff);
    }
    let hierarchy = Hierarchy::detect(&options.cgroup_root)?;
    let loaded = loader::load(&hierarchy)?;
    Ok((hierarchy, loaded))
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
    relist: JoinHandle<()>,
    stopper: Option<Stopper>,
    /// Attached for as long as this lives.
    _programs: Option<aya::Ebpf>,
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
    }

    fn untrack(&self, pod: &PodUid) {
        self.inner.tracked.untrack(pod);
        self.inner
            .health
            .set_blind_pods(self.inner.tracked.blind_pods());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.relist.abort();
        if let Some(stopper) = &self.stopper {
            stopper.stop();
        }
    }
}
