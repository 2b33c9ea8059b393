//! Whose first process is looked for next. Pure.
//!
//! Those that are new go before those whose look-up failed, and the failed ones hold few of the
//! places: a container that the runtime hangs on delays no other.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use swiftlet_model::ids::{ContainerId, PodUid};

use crate::pidfd::{Running, Wanted};

/// Most look-ups at the same time; the runtime answers one within milliseconds.
const IN_FLIGHT_MAX: usize = 8;

/// Most of them for containers whose look-up failed before.
const RETRIES_MAX: usize = 2;

/// What waits, what is asked for, and what failed.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    fresh: VecDeque<Wanted>,
    again: VecDeque<Wanted>,
    /// Containers in either queue or in flight; true for one that is asked for again.
    known: HashMap<ContainerId, bool>,
    in_flight: HashSet<ContainerId>,
    /// Containers whose last look-up failed, and their pods.
    blind: BTreeMap<ContainerId, PodUid>,
    /// Whether those are others than [`LookUps::degraded`] has answered.
    changed: bool,
}

impl LookUps {
    /// Looks for it, unless that is so already. There are at most as many as containers run.
    pub(super) fn push(&mut self, wanted: Wanted) {
        if self.known.contains_key(&wanted.container) {
            return;
        }
        let again = self.blind.contains_key(&wanted.container);
        self.known.insert(wanted.container.clone(), again);
        if again {
            self.again.push_back(wanted);
        } else {
            self.fresh.push_back(wanted);
        }
    }

    /// The next to be looked for, if there is a place for it.
    pub(super) fn begin(&mut self) -> Option<Wanted> {
        let retries = self.in_flight.iter().filter(|id| self.known[*id]).count();
        let fresh = self.in_flight.len() - retries;
        let next = if fresh < IN_FLIGHT_MAX - RETRIES_MAX {
            self.fresh.pop_front()
        } else {
            None
        };
        let next = match next {
            None if retries < RETRIES_MAX => self.again.pop_front(),
            next => next,
        }?;
        self.in_flight.insert(next.container.clone());
        Some(next)
    }

    /// It was found, or has ended.
    pub(super) fn done(&mut self, container: &ContainerId) {
        self.known.remove(container);
        self.in_flight.remove(container);
        self.changed |= self.blind.remove(container).is_some();
    }

    /// It was not found. True if it is the first time.
    pub(super) fn failed(&mut self, wanted: Wanted) -> bool {
        self.known.remove(&wanted.container);
        self.in_flight.remove(&wanted.container);
        let is_new = self.blind.insert(wanted.container, wanted.pod).is_none();
        self.changed |= is_new;
        is_new
    }

    /// Forgets failures of what runs no more.
    pub(super) fn retain_blind(&mut self, running: &Running) {
        if !self.blind.is_empty() {
            let running: HashSet<_> = running.iter().map(|wanted| &wanted.container).collect();
            let before = self.blind.len();
            self.blind
                .retain(|container, _| running.contains(container));
            self.changed |= self.blind.len() != before;
        }
    }

    /// Whether there is something new for [`LookUps::degraded`] to answer.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Containers whose last look-up failed.
    pub(super) fn degraded(&mut self) -> BTreeMap<ContainerId, PodUid> {
        self.changed = false;
        self.blind.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use swiftlet_model::runtime::ProcessOf;

    fn wanted(number: usize) -> Wanted {
        Wanted {
            container: ContainerId::from(format!("c{number}").as_str()),
            pod: PodUid::from("p"),
            of: ProcessOf::Container,
        }
    }

    #[test]
    fn a_container_is_looked_for_once_at_a_time() {
        let mut queue = LookUps::default();
        queue.push(wanted(1));
        queue.push(wanted(1));
        assert_eq!(queue.begin(), Some(wanted(1)));
        queue.push(wanted(1));
        assert_eq!(queue.begin(), None);
        queue.done(&wanted(1).container);
        queue.push(wanted(1));
        assert_eq!(queue.begin(), Some(wanted(1)));
    }

    #[test]
    fn containers_that_hang_leave_places_for_those_that_do_not() {
        let mut queue = LookUps::default();
        for number in 0..20 {
            queue.push(wanted(number));
        }
        while let Some(hangs) = queue.begin() {
            assert!(queue.failed(hangs), "the first time");
        }
        for number in 0..20 {
            queue.push(wanted(number));
        }
        let begun = std::iter::from_fn(|| queue.begin()).count();
        assert_eq!(begun, RETRIES_MAX, "the rest of the places is for new ones");
        queue.push(wanted(100));
        assert_eq!(queue.begin(), Some(wanted(100)));
        assert!(queue.has_changed());
        assert_eq!(queue.degraded().len(), 20);
        assert!(!queue.has_changed(), "all of it is known");
        queue.retain_blind(&Arc::new(vec![wanted(3)]));
        assert_eq!(queue.degraded().len(), 1, "of what runs");
        assert!(!queue.failed(wanted(3)), "known to fail");
        assert!(!queue.has_changed(), "nothing new");
        queue.done(&wanted(3).container);
        assert!(queue.has_changed());
    }
}
