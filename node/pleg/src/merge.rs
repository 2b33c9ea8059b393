//! Once per container: two sources tell of the same start and the same death.
//!
//! ```text
//! (unknown) ──started──▶ Started ──died──▶ Died
//!     └───────────────died───────────────────▲
//! ```
//!
//! A death before "started" is accepted; whatever comes after a death is old news, with one
//! exception. A death of which the runtime has not spoken and whose exit code nobody saw may be
//! wrong, or so early that the runtime's record says "runs" for as long as it is asked: what is
//! then told of the container for the first time becomes a hint, so that the runtime is asked
//! again.

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
    /// Nobody can know better: the runtime says so, or the exit code was seen.
    settled: bool,
    since: Instant,
}

/// What is to be done with something that a source tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Told as it is.
    Event,
    /// Only that something changed.
    Hint,
    /// Nothing: it was told before.
    Old,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Started,
    Died,
}

impl Merge {
    /// Whether the start is news.
    pub(crate) fn started(&self, container: &ContainerId, now: Instant) -> News {
        match self.told.entry(container.clone()) {
            // It runs, though it was told to have ended.
            Entry::Occupied(entry) if !entry.get().settled => News::Hint,
            Entry::Occupied(_) => News::Old,
            Entry::Vacant(entry) => {
                entry.insert(Told {
                    phase: Phase::Started,
                    settled: true,
                    since: now,
                });
                News::Event
            }
        }
    }

    /// Whether the death is news. It is `settled` if the runtime says so, or the exit code was
    /// seen.
    pub(crate) fn died(&self, container: &ContainerId, settled: bool, now: Instant) -> News {
        let told = |settled| Told {
            phase: Phase::Died,
            settled,
            since: now,
        };
        match self.told.entry(container.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(told(settled));
                News::Event
            }
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                let stays = before.phase == Phase::Died && before.settled;
                entry.insert(told(settled || stays));
                match before.phase {
                    Phase::Started => News::Event,
                    Phase::Died if settled && !before.settled => News::Hint,
                    Phase::Died => News::Old,
                }
            }
        }
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
        assert_eq!(merge.started(&id("a"), now), News::Event);
        assert_eq!(merge.started(&id("a"), now), News::Old);
        assert!(merge.is_running(&id("a")));
        assert_eq!(merge.died(&id("a"), true, now), News::Event);
        assert_eq!(merge.died(&id("a"), true, now), News::Old);
        assert!(!merge.is_running(&id("a")));
    }

    #[test]
    fn an_exit_before_started_is_accepted_and_the_start_is_then_old_news() {
        let (merge, now) = (Merge::default(), Instant::now());
        assert_eq!(merge.died(&id("a"), true, now), News::Event);
        assert_eq!(merge.started(&id("a"), now), News::Old);
    }

    #[test]
    fn what_the_runtime_says_after_a_death_that_nobody_proved_is_a_hint() {
        let (merge, now) = (Merge::default(), Instant::now());
        assert_eq!(merge.died(&id("a"), false, now), News::Event);
        assert_eq!(
            merge.died(&id("a"), false, now),
            News::Old,
            "nothing is added"
        );
        assert_eq!(
            merge.started(&id("a"), now),
            News::Hint,
            "it runs after all"
        );
        assert_eq!(merge.died(&id("a"), true, now), News::Hint);
        assert_eq!(merge.died(&id("a"), true, now), News::Old);
        assert_eq!(merge.died(&id("a"), false, now), News::Old);
        assert_eq!(merge.started(&id("a"), now), News::Old);
    }

    #[test]
    fn a_container_that_is_newer_than_the_list_is_not_forgotten() {
        let (merge, listed) = (Merge::default(), Instant::now());
        merge.died(
            &id("old"),
            true,
            listed.checked_sub(Duration::from_secs(1)).expect("uptime"),
        );
        merge.died(
            &id("kept"),
            true,
            listed.checked_sub(Duration::from_secs(1)).expect("uptime"),
        );
        merge.died(&id("new"), true, listed + Duration::from_millis(1));
        merge.forget(listed, |container| container.as_str() == "kept");
        let again = |name| merge.died(&id(name), true, listed);
        assert_eq!(again("old"), News::Event, "forgotten, so news again");
        assert_eq!(again("kept"), News::Old);
        assert_eq!(again("new"), News::Old);
    }
}
