//! Where events come from at the moment, and what was counted.

use std::sync::Arc;

use tokio::sync::watch;

use crate::PlegError;

/// Where events come from.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The kernel's programs, with the slow relist behind them.
    Bpf,
    /// The runtime's lists alone, once a second.
    Relist {
        /// Why.
        reason: Arc<PlegError>,
    },
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records read from the ring.
    pub kernel_events: u64,
    /// Starts told to the sync loop.
    pub started: u64,
    /// Deaths told to the sync loop.
    pub died: u64,
    /// Records that found the ring full.
    pub ring_full: u64,
    /// Cgroups that found the map full.
    pub map_full: u64,
    /// Records of cgroups that nobody tracks any more.
    pub strangers: u64,
    /// Pods that only the relist sees.
    pub blind_pods: u64,
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
}

/// The one place where both are changed; every room that counts holds a clone.
#[derive(Clone, Debug)]
pub(crate) struct HealthWriter {
    state: watch::Sender<Health>,
}

impl HealthWriter {
    pub(crate) fn new() -> Self {
        let health = Health {
            mode: Mode::Bpf,
            stats: Stats::default(),
        };
        Self {
            state: watch::Sender::new(health),
        }
    }

    pub(crate) fn read(&self) -> Health {
        self.state.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Health> {
        self.state.subscribe()
    }

    /// From now on the relist is alone.
    pub(crate) fn fall_back(&self, reason: PlegError) {
        self.state.send_modify(|health| {
            health.mode = Mode::Relist {
                reason: Arc::new(reason),
            }
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

    /// Whether some container can end without the kernel telling.
    pub(crate) fn is_blind(&self) -> bool {
        let health = self.state.borrow();
        matches!(health.mode, Mode::Relist { .. }) || health.stats.blind_pods > 0
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
}
