//! Reads the kernel's ring on a thread of its own and tells the sync loop.
//!
//! The thread sleeps in epoll, so an idle node costs nothing. When the sync loop's queue is full it
//! waits there, and the ring (8 MiB) takes what comes meanwhile; what finds even that full is
//! counted by the kernel programs and answered by a relist.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aya::maps::{MapData, PerCpuArray, RingBuf};
use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};
use swiftlet_ebpf_abi::{Event, EventKind, counters};
use swiftlet_model::ids::PodUid;
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind, LifecycleSource};
use tokio::sync::{Notify, oneshot};

use crate::PlegError;
use crate::teller::{Report, Stopped, Teller};
use crate::tracked::TrackedPods;

/// The signal's bits in a wait status; bit 7 says that a core was dumped.
const SIGNAL_MASK: u32 = 0x7f;

/// What a shell reports for a process that a signal ended, less the signal's number.
const SIGNAL_CODE_BASE: i32 = 128;

const DATA: u64 = 1;
const STOP: u64 = 2;

/// Everything that the thread works with.
pub(crate) struct Reader {
    pub(crate) ring: RingBuf<MapData>,
    pub(crate) counters: PerCpuArray<MapData, u64>,
    pub(crate) tracked: Arc<TrackedPods>,
    pub(crate) teller: Teller,
    pub(crate) relist_now: Arc<Notify>,
    /// Told if the ring cannot be read any more.
    pub(crate) failed: oneshot::Sender<PlegError>,
}

/// Ends the thread.
pub(crate) struct Stopper {
    stop: Arc<EventFd>,
}

impl Stopper {
    pub(crate) fn stop(&self) {
        if let Err(error) = self.stop.write(1) {
            tracing::debug!(%error, "the event ring's thread was not told to stop");
        }
    }
}

impl Reader {
    /// Starts the thread.
    pub(crate) fn spawn(mut self) -> Result<Stopper, PlegError> {
        let failed = |call| {
            move |error: Errno| PlegError::Ring {
                call,
                source: error.into(),
            }
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = EventFd::from_value_and_flags(0, flags).map_err(failed("eventfd"))?;
        let stop = Arc::new(stop);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll_create1"))?;
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        epoll
            .add(&self.ring, readable(DATA))
            .map_err(failed("epoll_ctl"))?;
        epoll
            .add(&*stop, readable(STOP))
            .map_err(failed("epoll_ctl"))?;
        let stopper = Stopper { stop: stop.clone() };
        thread::Builder::new()
            .name("pleg-ring".to_owned())
            .spawn(move || {
                // Held until the loop ends: the epoll instance refers to it.
                let _stop = stop;
                if let Err(error) = self.run(&epoll) {
                    // Nobody to tell it to: the event source is gone.
                    let _ = self.failed.send(error);
                }
            })
            .map_err(|source| PlegError::Ring {
                call: "clone",
                source,
            })?;
        Ok(stopper)
    }

    fn run(&mut self, epoll: &Epoll) -> Result<(), PlegError> {
        let mut ready = [EpollEvent::empty(); 2];
        loop {
            match epoll.wait(&mut ready, EpollTimeout::NONE) {
                Ok(count) if ready[..count].iter().any(|event| event.data() == STOP) => {
                    return Ok(());
                }
                Ok(_) => (),
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    let source = io::Error::from(error);
                    return Err(PlegError::Ring {
                        call: "epoll_wait",
                        source,
                    });
                }
            }
            if self.drain().is_err() {
                return Ok(());
            }
            self.check_drops();
        }
    }

    fn drain(&mut self) -> Result<(), Stopped> {
        let boot = boot_time();
        loop {
            // Copied out, so that its place in the ring is free while the sync loop's queue is
            // waited for.
            let Some(event) = self.ring.next().map(|item| Event::decode(&item)) else {
                return Ok(());
            };
            self.teller.health.count(|stats| stats.kernel_events += 1);
            if let Some(event) = event
                && let Some(kind) = event.kind()
            {
                self.handle(kind, &event, at(boot, event.at_ns))?;
            }
        }
    }

    fn handle(&self, kind: EventKind, event: &Event, at: Timestamp) -> Result<(), Stopped> {
        let of = if kind == EventKind::Made {
            event.parent
        } else {
            event.cgroup
        };
        let Some(target) = self.tracked.target(of) else {
            self.teller.health.count(|stats| stats.strangers += 1);
            if kind != EventKind::Removed {
                self.relist_now.notify_one();
            }
            return Ok(());
        };
        if kind == EventKind::Made {
            self.tracked
                .add_container(event.cgroup, &target.pod, event.name());
            return Ok(());
        }
        let Some(container) = target.container() else {
            return Ok(());
        };
        let pod = target.pod.clone();
        match kind {
            EventKind::Started => self.tell(pod, Report::started(container), at),
            EventKind::Exited => {
                let mut exit = kernel_exit(event);
                // Read now: the cgroup goes when the runtime has noticed the exit.
                exit.oom_killed |= exit.code != 0 && self.tracked.oom_killed(&target);
                self.tell(pod, Report::died(container, Some(exit)), at)
            }
            // The runtime's own process ended before it became the container: only the runtime
            // knows why.
            EventKind::Aborted => self.tell(pod, LifecycleKind::Changed, at),
            EventKind::Removed => {
                self.tracked.remove_container(event.cgroup);
                // Its exit was lost, or it never had one that we could see.
                if self.teller.merge.is_running(&container) {
                    return self.tell(pod, Report::died(container, None), at);
                }
                Ok(())
            }
            EventKind::Made => Ok(()),
        }
    }

    fn tell(&self, pod: PodUid, kind: LifecycleKind, at: Timestamp) -> Result<(), Stopped> {
        self.teller.tell_blocking(Report {
            pod,
            kind,
            at,
            source: LifecycleSource::Kernel,
        })
    }

    /// The kernel drops only while there is something to read, so looking after each drain misses
    /// nothing.
    fn check_drops(&self) {
        let ring_full = self.sum(counters::RING_FULL);
        let map_full = self.sum(counters::MAP_FULL);
        let before = self.teller.health.read().stats;
        if ring_full != before.ring_full || map_full != before.map_full {
            tracing::warn!(
                ring_full,
                map_full,
                "the kernel had to drop events; listing instead"
            );
            self.teller.health.count(|stats| {
                stats.ring_full = ring_full;
                stats.map_full = map_full;
            });
            self.relist_now.notify_one();
        }
    }

    fn sum(&self, index: u32) -> u64 {
        self.counters
            .get(&index, 0)
            .map_or(0, |values| values.iter().sum())
    }
}

fn kernel_exit(event: &Event) -> KernelExit {
    let signal = i32::try_from(event.status & SIGNAL_MASK).unwrap_or_default();
    let code = i32::try_from(event.status >> 8 & 0xff).unwrap_or_default();
    let code = if signal == 0 {
        code
    } else {
        SIGNAL_CODE_BASE + signal
    };
    KernelExit {
        code,
        signal,
        oom_killed: event.oom != 0,
    }
}

/// The wall-clock time at which `CLOCK_MONOTONIC` was zero. Asked for each batch: the wall clock
/// may be set.
fn boot_time() -> Timestamp {
    let now = Timestamp::now();
    let since = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    now.checked_sub(since).unwrap_or(now)
}

fn at(boot: Timestamp, ktime_ns: u64) -> Timestamp {
    boot.checked_add(Duration::from_nanos(ktime_ns))
        .unwrap_or(boot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthWriter;
    use tokio::sync::mpsc;

    fn exit_of(status: u32, oom: u32) -> KernelExit {
        let mut bytes = [0; Event::BYTES];
        bytes[32..36].copy_from_slice(&status.to_ne_bytes());
        bytes[36..40].copy_from_slice(&oom.to_ne_bytes());
        kernel_exit(&Event::decode(&bytes).expect("a whole record"))
    }

    #[test]
    fn wait_statuses_become_exit_codes() {
        let exited = |code| KernelExit {
            code,
            signal: 0,
            oom_killed: false,
        };
        assert_eq!(exit_of(0, 0), exited(0));
        assert_eq!(exit_of(1 << 8, 0), exited(1));
        assert_eq!(exit_of(255 << 8, 0), exited(255));
        assert_eq!(
            exit_of(9, 1),
            KernelExit {
                code: 137,
                signal: 9,
                oom_killed: true
            }
        );
        let aborted = KernelExit {
            code: 134,
            signal: 6,
            oom_killed: false,
        };
        assert_eq!(
            exit_of(6 | 0x80, 0),
            aborted,
            "a core dump does not change the signal"
        );
    }

    #[test]
    fn short_records_are_refused() {
        assert!(Event::decode(&[0; 8]).is_none());
    }

    #[test]
    fn kernel_time_becomes_wall_clock_time() {
        let monotonic = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"));
        let ktime_ns = u64::try_from(monotonic.as_nanos()).expect("584 years");
        let difference = Timestamp::now()
            .duration_since(at(boot_time(), ktime_ns))
            .abs();
        assert!(
            difference < jiff::SignedDuration::from_millis(100),
            "{difference:?}"
        );
    }

    #[test]
    fn a_drop_in_the_kernel_asks_for_a_relist() {
        let root = std::path::Path::new("/sys/fs/cgroup");
        let hierarchy = crate::hierarchy::Hierarchy::detect(root).expect("cgroups");
        let mut loaded = crate::loader::load(&hierarchy).expect("the programs are accepted");
        let cpus = aya::util::nr_cpus().expect("a number of processors");
        let each = aya::maps::PerCpuValues::try_from(vec![2; cpus]).expect("one for each");
        loaded
            .counters
            .set(counters::RING_FULL, each, 0)
            .expect("the map can be written");
        let relist_now = Arc::new(Notify::new());
        let reader = Reader {
            ring: loaded.ring,
            counters: loaded.counters,
            tracked: Arc::new(TrackedPods::without_kernel(relist_now.clone())),
            teller: Teller {
                merge: Arc::default(),
                events: mpsc::channel(1).0,
                health: HealthWriter::new(),
            },
            relist_now: relist_now.clone(),
            failed: oneshot::channel().0,
        };
        reader.check_drops();
        assert_eq!(reader.teller.health.read().stats.ring_full, 2 * cpus as u64);
        assert!(futures::FutureExt::now_or_never(relist_now.notified()).is_some());
        reader.check_drops();
        assert!(
            futures::FutureExt::now_or_never(relist_now.notified()).is_none(),
            "only once"
        );
    }
}
