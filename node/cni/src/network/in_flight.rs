//! Which containers somebody works on at this moment.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that are being served, counted by container. A shim lives on when the runtime that
/// started it is killed, and so does its request here.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Changed by the workers, each for a moment.
    counts: Mutex<HashMap<String, usize>>,
    ended: Condvar,
}

/// One request. It has ended when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    all: &'a InFlight,
    container_id: &'a str,
}

impl InFlight {
    /// A request for this container begins.
    pub(super) fn begin<'a>(&'a self, container_id: &'a str) -> Ticket<'a> {
        *self.lock().entry(container_id.to_owned()).or_default() += 1;
        Ticket {
            all: self,
            container_id,
        }
    }

    /// Waits until nobody works on any of these, at most so long; answers who is still worked on.
    pub(super) fn wait_for(&self, ids: &HashSet<String>, limit: Duration) -> HashSet<String> {
        let busy =
            |counts: &mut HashMap<String, usize>| ids.iter().any(|id| counts.contains_key(id));
        let waited = self.ended.wait_timeout_while(self.lock(), limit, busy);
        let (counts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left = ids.iter().filter(|id| counts.contains_key(*id));
        left.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // A count is changed in one step: no panic leaves it half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        if let Some(count) = counts.get_mut(self.container_id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(self.container_id);
            }
        }
        drop(counts);
        self.all.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_requests_of_the_named_are_waited_for_and_not_for_ever() {
        let all = InFlight::default();
        let named: HashSet<_> = ["a".to_owned(), "b".to_owned()].into();
        let first = all.begin("a");
        let second = all.begin("a");
        let _other = all.begin("c");
        drop(first);
        let left = all.wait_for(&named, Duration::ZERO);
        assert_eq!(left, HashSet::from(["a".to_owned()]), "one of two goes on");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| all.wait_for(&named, Duration::from_mins(1)));
            drop(second);
            assert!(waiter.join().unwrap().is_empty());
        });
    }
}
