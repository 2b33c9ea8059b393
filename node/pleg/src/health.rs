//! Where events come from at the moment, why not from a better source, and what was counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use swiftlet_model::ids::{ContainerId, PodUid};
use tokio::sync::watch;

use crate::PlegError;

/// What can tell of starts and ends, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The kernel's programs.
    Kernel,
    /// The runtime's stream of events.
    Runtime,
    /// A descriptor of each container's first process.
    Pidfd,
    /// The runtime's lists alone, once a second.
    Relist,
}

impl Source {
    /// All of them, best first.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Runtime, Self::Pidfd, Self::Relist];
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel programs",
            Self::Runtime => "the runtime's event stream",
            Self::Pidfd => "pidfds",
            Self::Relist => "a relist each second",
        })
    }
}

/// The source in use, with the slow relist behind it.
#[derive(Clone, Debug)]
pub struct Mode {
    /// The source in use.
    pub source: Source,
    /// Better ones that cannot be used, best first, and why.
    pub passed: BTreeMap<Source, Arc<PlegError>>,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "starts and ends of containers are told by {}",
            self.source
        )?;
        for (source, why) in self.passed.range(..self.source) {
            write!(f, "; not by {source}: {}", why.with_causes())?;
        }
        Ok(())
    }
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records read from the ring.
    pub kernel_events: u64,
    /// Events read from the runtime's stream.
    pub runtime_events: u64,
    /// Ends seen by pidfd.
    pub pidfd_ends: u64,
    /// Starts told to the sync loop.
    pub started: u64,
    /// Deaths told to the sync loop.
    pub died: u64,
    /// Records that found the ring full.
    pub ring_full: u64,
    /// Cgroups that found the map full.
    pub map_full: u64,
    /// Events of the runtime that found the sync loop's queue full.
    pub queue_full: u64,
    /// Records of cgroups that nobody tracks any more.
    pub strangers: u64,
    /// Pods that only the relist sees.
    pub blind_pods: u64,
    /// Containers that only the relist sees.
    pub blind_containers: u64,
    /// How often the source changed.
    pub source_changes: u64,
    /// Relists that were answered.
    pub relists: u64,
    /// Relists that the runtime did not answer.
    pub relist_failures: u64,
    /// How long the last relist took, in milliseconds.
    pub relist_last_ms: u64,
}

/// Mode and counters.
#[derive(Clone, Debug)]
pub struct Health {
    /// Where events come from.
    pub mode: Mode,
    /// What was counted.
    pub stats: Stats,
    /// Containers of which the runtime does not tell the first process, with their pods: only the
    /// relist sees them. Others are not affected.
    pub degraded: Arc<BTreeMap<ContainerId, PodUid>>,
}

/// What the lists alone can tell of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// Every pod.
    All,
    /// These pods; none is as it should be.
    Pods(BTreeSet<PodUid>),
}

/// The one place where all is changed; every room that counts holds a clone.
#[derive(Clone, Debug)]
pub(crate) struct HealthWriter {
    state: watch::Sender<Health>,
}

impl HealthWriter {
    /// Before any source works: the relist is alone.
    pub(crate) fn new() -> Self {
        let mode = Mode {
            source: Source::Relist,
            passed: BTreeMap::new(),
        };
        let health = Health {
            mode,
            stats: Stats::default(),
            degraded: Arc::default(),
        };
        Self {
            state: watch::Sender::new(health),
        }
    }

    pub(crate) fn read(&self) -> Health {
        self.state.borrow().clone()
    }

    pub(crate) fn source(&self) -> Source {
        self.state.borrow().mode.source
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Health> {
        self.state.subscribe()
    }

    /// From now on events come from there.
    pub(crate) fn use_source(&self, source: Source) {
        self.state.send_if_modified(|health| {
            let changed = health.mode.source != source;
            health.mode.source = source;
            health.mode.passed.remove(&source);
            health.stats.source_changes += u64::from(changed);
            changed
        });
        tracing::info!(mode = %self.state.borrow().mode, "source of lifecycle events");
    }

    /// A source cannot be used, or no longer.
    pub(crate) fn pass(&self, source: Source, reason: PlegError) {
        self.state.send_modify(|health| {
            health.mode.passed.insert(source, Arc::new(reason));
        });
    }

    /// Wakes nobody: it happens with each event of the kernel.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        self.state.send_if_modified(|health| {
            change(&mut health.stats);
            false
        });
    }

    pub(crate) fn set_blind_pods(&self, pods: u64) {
        self.state.send_if_modified(|health| {
            let changed = health.stats.blind_pods != pods;
            health.stats.blind_pods = pods;
            changed
        });
    }

    pub(crate) fn set_degraded(&self, degraded: BTreeMap<ContainerId, PodUid>) {
        self.state.send_if_modified(|health| {
            let changed = *health.degraded != degraded;
            if changed {
                health.stats.blind_containers = degraded.len() as u64;
                health.degraded = Arc::new(degraded);
            }
            changed
        });
    }

    /// Which pods have containers that can end without a source telling.
    pub(crate) fn unseen(&self, untracked: impl FnOnce() -> BTreeSet<PodUid>) -> Unseen {
        let health = self.state.borrow();
        match health.mode.source {
            Source::Kernel => Unseen::Pods(untracked()),
            Source::Pidfd => Unseen::Pods(health.degraded.values().cloned().collect()),
            Source::Runtime => Unseen::Pods(BTreeSet::new()),
            Source::Relist => Unseen::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_wakes_nobody_but_can_be_read() {
        let writer = HealthWriter::new();
        let reader = writer.subscribe();
        writer.count(|stats| stats.kernel_events += 1);
        assert!(!reader.has_changed().unwrap());
        assert_eq!(reader.borrow().stats.kernel_events, 1);
        writer.set_blind_pods(1);
        assert!(reader.has_changed().unwrap());
    }

    #[test]
    fn the_mode_names_the_source_and_why_not_a_better_one() {
        let writer = HealthWriter::new();
        writer.pass(Source::Kernel, PlegError::SwitchedOff);
        writer.pass(Source::Pidfd, PlegError::SwitchedOff);
        writer.use_source(Source::Runtime);
        assert_eq!(
            writer.read().mode.to_string(),
            "starts and ends of containers are told by the runtime's event stream; not by kernel \
             programs: switched off"
        );
        assert_eq!(writer.read().stats.source_changes, 1);
    }

    #[test]
    fn a_source_is_blind_to_what_it_cannot_see_only() {
        let writer = HealthWriter::new();
        let pods = |names: &[&str]| {
            let names = names.iter().copied().map(PodUid::from);
            Unseen::Pods(names.collect())
        };
        let unseen = |source, untracked: &[&str]| {
            writer.use_source(source);
            writer.unseen(|| untracked.iter().copied().map(PodUid::from).collect())
        };
        assert_eq!(unseen(Source::Relist, &[]), Unseen::All);
        let one = BTreeMap::from([(ContainerId::from("c"), PodUid::from("p"))]);
        writer.set_degraded(one);
        assert_eq!(unseen(Source::Kernel, &["q"]), pods(&["q"]));
        assert_eq!(unseen(Source::Pidfd, &["q"]), pods(&["p"]));
        let whole = unseen(Source::Runtime, &["q"]);
        assert_eq!(whole, pods(&[]), "it sees every container of the runtime");
        writer.set_degraded(BTreeMap::new());
        assert_eq!(unseen(Source::Kernel, &[]), pods(&[]));
        assert_eq!(unseen(Source::Pidfd, &["q"]), pods(&[]));
    }
}
