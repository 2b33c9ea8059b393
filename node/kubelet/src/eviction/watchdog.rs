//! Which thresholds are met, and since when; what the node is short of. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use swiftlet_model::node_stats::Level;

use crate::eviction::thresholds::{EvictionOptions, Threshold};
use crate::node_status::Pressure;

/// What there may be too little of. The order is that in which the node helps itself: memory first,
/// then what its own file system holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// `memory.available`.
    MemoryAvailable,
    /// `nodefs.available`.
    NodefsAvailable,
    /// `nodefs.inodesFree`.
    NodefsInodesFree,
    /// `imagefs.available`.
    ImagefsAvailable,
    /// `imagefs.inodesFree`.
    ImagefsInodesFree,
    /// `pid.available`.
    PidAvailable,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::MemoryAvailable,
        Self::NodefsAvailable,
        Self::NodefsInodesFree,
        Self::ImagefsAvailable,
        Self::ImagefsInodesFree,
        Self::PidAvailable,
    ];

    /// Its name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::NodefsAvailable => "nodefs.available",
            Self::NodefsInodesFree => "nodefs.inodesFree",
            Self::ImagefsAvailable => "imagefs.available",
            Self::ImagefsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// What pods use of it, in the words of events and messages.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodefsAvailable | Self::ImagefsAvailable => "ephemeral-storage",
            Self::NodefsInodesFree | Self::ImagefsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// Whether it is about a disk.
    pub fn is_disk(self) -> bool {
        !matches!(self, Self::MemoryAvailable | Self::PidAvailable)
    }

    /// Whether it counts bytes.
    pub fn is_bytes(self) -> bool {
        !matches!(
            self,
            Self::NodefsInodesFree | Self::ImagefsInodesFree | Self::PidAvailable
        )
    }
}

/// What was seen. A signal that could not be read is missing: nothing is done about it.
pub type Observations = BTreeMap<Signal, Level>;

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// What the node is short of, the transition period included.
    pub(super) pressure: Pressure,
    /// The threshold that has to be dealt with first.
    pub(super) act: Option<Threshold>,
}

/// Remembers since when thresholds are met.
#[derive(Debug)]
pub(super) struct Watchdog {
    options: EvictionOptions,
    /// Index of the threshold, and when it was met first.
    since: BTreeMap<usize, Instant>,
    /// Thresholds that were acted upon and are not resolved yet.
    open: Vec<usize>,
    /// When each condition held last: memory, disk, process ids.
    last: [Option<Instant>; 3],
}

impl Watchdog {
    pub(super) fn new(options: EvictionOptions) -> Self {
        Self {
            options,
            since: BTreeMap::new(),
            open: Vec::new(),
            last: [None; 3],
        }
    }

    /// Takes what was seen at `now`.
    pub(super) fn pass(&mut self, seen: &Observations, now: Instant) -> Findings {
        let all = self.options.thresholds.iter().enumerate();
        let met: Vec<usize> = all
            .filter(|(index, threshold)| {
                // What was met must be undone with the reserve that the user wants.
                is_met(threshold, seen, self.open.contains(index))
            })
            .map(|(index, _)| index)
            .collect();
        self.since.retain(|index, _| met.contains(index));
        for index in &met {
            self.since.entry(*index).or_insert(now);
        }
        let thresholds = &self.options.thresholds;
        for index in &met {
            self.last[kind(thresholds[*index].signal)] = Some(now);
        }
        let holds = |kind: usize| {
            self.last[kind].is_some_and(|at| {
                let ago = now.saturating_duration_since(at);
                ago.is_zero() || ago < self.options.pressure_transition
            })
        };
        let pressure = Pressure {
            memory: holds(0),
            disk: holds(1),
            pids: holds(2),
        };
        self.open = met
            .iter()
            .copied()
            .filter(|index| {
                let grace = thresholds[*index].grace.unwrap_or(Duration::ZERO);
                now.saturating_duration_since(self.since[index]) >= grace
            })
            .collect();
        let act = self.open.iter().map(|index| thresholds[*index]);
        // Of two on one signal the hard one is dealt with: it leaves no time.
        let act = act.min_by_key(|one| (one.signal, one.grace.is_some()));
        Findings { pressure, act }
    }
}

fn kind(signal: Signal) -> usize {
    match signal {
        Signal::MemoryAvailable => 0,
        Signal::PidAvailable => 2,
        _ => 1,
    }
}

fn is_met(threshold: &Threshold, seen: &Observations, open: bool) -> bool {
    let Some(level) = seen.get(&threshold.signal) else {
        return false;
    };
    let mut least = threshold.value.of(level.capacity);
    if let (true, Some(more)) = (open, threshold.min_reclaim) {
        least = least.saturating_add(more.of(level.capacity));
    }
    level.available < least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::thresholds::Value;

    const CAPACITY: u64 = 1000;

    fn memory(available: u64) -> Observations {
        let level = Level {
            capacity: CAPACITY,
            available,
        };
        [(Signal::MemoryAvailable, level)].into()
    }

    fn watchdog(grace: Option<u64>, min_reclaim: Option<Value>) -> Watchdog {
        Watchdog::new(EvictionOptions {
            thresholds: vec![Threshold {
                signal: Signal::MemoryAvailable,
                value: Value::Percent(10.0),
                grace: grace.map(Duration::from_secs),
                min_reclaim,
            }],
            max_pod_grace: Duration::ZERO,
            pressure_transition: Duration::from_mins(5),
        })
    }

    #[test]
    fn a_hard_threshold_is_acted_upon_at_once_and_its_condition_stays() {
        let (mut dog, start) = (watchdog(None, None), Instant::now());
        assert_eq!(dog.pass(&memory(100), start), Findings::default());
        let found = dog.pass(&memory(99), start);
        assert!(found.act.is_some() && found.pressure.memory);
        let later = dog.pass(&memory(500), start + Duration::from_mins(4));
        assert!(later.act.is_none() && later.pressure.memory);
        let over = dog.pass(&memory(500), start + Duration::from_mins(5));
        assert_eq!(over, Findings::default());
    }

    #[test]
    fn a_soft_threshold_must_be_met_without_a_break() {
        let (mut dog, start) = (watchdog(Some(30), None), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = dog.pass(&memory(50), at(0));
        assert!(first.act.is_none() && first.pressure.memory);
        assert!(dog.pass(&memory(500), at(20)).act.is_none());
        assert!(dog.pass(&memory(50), at(29)).act.is_none());
        assert!(dog.pass(&memory(50), at(58)).act.is_none());
        assert!(dog.pass(&memory(50), at(59)).act.is_some());
    }

    #[test]
    fn more_than_the_threshold_is_reclaimed_if_that_is_wanted() {
        let mut dog = watchdog(None, Some(Value::Amount(200)));
        let now = Instant::now();
        assert!(dog.pass(&memory(250), now).act.is_none());
        assert!(dog.pass(&memory(50), now).act.is_some());
        assert!(dog.pass(&memory(250), now).act.is_some());
        assert!(dog.pass(&memory(300), now).act.is_none());
        assert!(dog.pass(&memory(250), now).act.is_none());
    }

    #[test]
    fn what_cannot_be_read_is_no_shortage() {
        let mut dog = watchdog(None, None);
        assert_eq!(
            dog.pass(&Observations::new(), Instant::now()),
            Findings::default()
        );
    }
}
