//! Once per container: two sources tell of the same start and the same death.
//!
//! ```text
//! (unknown) ──started──▶ Started ──died──▶ Died
//!     └───────────────died───────────────────▲
//! ```
//!
//! A death before "started" is accepted; whatever comes after a death is old news.

use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use swiftlet_model::ids::ContainerId;

/// What was told of each container.
///
/// Shared by the ring's thread and the relist: each change holds one entry's lock for its duration
/// and waits for nothing.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    told: DashMap<ContainerId, Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    phase: Phase,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Started,
    Died,
}

impl Merge {
    /// Whether the start is news.
    pub(crate) fn started(&self, container: &ContainerId, now: Instant) -> bool {
        match self.told.entry(container.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Told {
                    phase: Phase::Started,
                    since: now,
                });
                true
            }
        }
    }

    /// Whether the death is news.
    pub(crate) fn died(&self, container: &ContainerId, now: Instant) -> bool {
        let told = Told {
            phase: Phase::Died,
            since: now,
        };
        let before = self.told.insert(container.clone(), told);
        before.is_none_or(|before| before.phase == Phase::Started)
    }

    /// Whether the container runs, as far as anybody told.
    pub(crate) fn is_running(&self, container: &ContainerId) -> bool {
        self.told
            .get(container)
            .is_some_and(|told| told.phase == Phase::Started)
    }

    /// Forgets containers that `exists` does not know and of which nothing was told since `listed`.
    pub(crate) fn forget(&self, listed: Instant, exists: impl Fn(&ContainerId) -> bool) {
        self.told
            .retain(|container, told| told.since >= listed || exists(container));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn id(text: &str) -> ContainerId {
        ContainerId::from(text)
    }

    #[test]
    fn a_start_and_a_death_are_told_once_each() {
        let (merge, now) = (Merge::default(), Instant::now());
        assert!(merge.started(&id("a"), now));
        assert!(!merge.started(&id("a"), now));
        assert!(merge.is_running(&id("a")));
        assert!(merge.died(&id("a"), now));
        assert!(!merge.died(&id("a"), now));
        assert!(!merge.is_running(&id("a")));
    }

    #[test]
    fn an_exit_before_started_is_accepted_and_the_start_is_then_old_news() {
        let (merge, now) = (Merge::default(), Instant::now());
        assert!(merge.died(&id("a"), now));
        assert!(!merge.started(&id("a"), now));
    }

    #[test]
    fn a_container_that_is_newer_than_the_list_is_not_forgotten() {
        let (merge, listed) = (Merge::default(), Instant::now());
        merge.died(
            &id("old"),
            listed.checked_sub(Duration::from_secs(1)).expect("uptime"),
        );
        merge.died(
            &id("kept"),
            listed.checked_sub(Duration::from_secs(1)).expect("uptime"),
        );
        merge.died(&id("new"), listed + Duration::from_millis(1));
        merge.forget(listed, |container| container.as_str() == "kept");
        assert!(merge.died(&id("old"), listed), "forgotten, so news again");
        assert!(!merge.died(&id("kept"), listed));
        assert!(!merge.died(&id("new"), listed));
    }
}
