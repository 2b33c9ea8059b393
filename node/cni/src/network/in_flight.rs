//! Which containers somebody works on at this moment: one request at a time for each.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that are being served or wait for one of the same container. A shim lives on when the
/// runtime that started it is killed, and so does its request here: a DEL may come meanwhile.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Changed by the workers, each for a moment.
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By container, with those that wait.
    counts: HashMap<String, usize>,
    /// The containers of which a request is being served.
    served: HashSet<String>,
}

/// One request. It has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    all: &'a InFlight,
    container_id: &'a str,
    is_served: bool,
}

impl InFlight {
    /// A request for this container begins, once no other is served for it. `None` if that takes
    /// longer than the limit. Requests that are for no container do not wait for each other.
    pub(super) fn begin<'a>(
        &'a self,
        container_id: &'a str,
        limit: Duration,
    ) -> Option<Ticket<'a>> {
        let mut state = self.lock();
        *state.counts.entry(container_id.to_owned()).or_default() += 1;
        let mut ticket = Ticket {
            all: self,
            container_id,
            is_served: false,
        };
        if container_id.is_empty() {
            return Some(ticket);
        }
        let is_served = |state: &mut State| state.served.contains(container_id);
        let waited = self.ended.wait_timeout_while(state, limit, is_served);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ticket.is_served = state.served.insert(container_id.to_owned());
        // The ticket that is no good takes the lock when it goes.
        drop(state);
        ticket.is_served.then_some(ticket)
    }

    /// Waits until nobody works on any of these, at most so long; answers who is still worked on.
    pub(super) fn wait_for(&self, ids: &HashSet<String>, limit: Duration) -> HashSet<String> {
        let busy = |state: &mut State| ids.iter().any(|id| state.counts.contains_key(id));
        let waited = self.ended.wait_timeout_while(self.lock(), limit, busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left = ids.iter().filter(|id| state.counts.contains_key(*id));
        left.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A count is changed in one step: no panic leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        if self.is_served {
            state.served.remove(self.container_id);
        }
        if let Some(count) = state.counts.get_mut(self.container_id) {
            *count -= 1;
            if *count == 0 {
                state.counts.remove(self.container_id);
            }
        }
        drop(state);
        self.all.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn only_the_requests_of_the_named_are_waited_for_and_not_for_ever() {
        let all = InFlight::default();
        let named: HashSet<_> = ["a".to_owned(), "b".to_owned()].into();
        let first = all.begin("a", LONG).unwrap();
        let _other = all.begin("c", LONG).unwrap();
        let left = all.wait_for(&named, Duration::ZERO);
        assert_eq!(left, HashSet::from(["a".to_owned()]));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| all.wait_for(&named, LONG));
            drop(first);
            assert!(waiter.join().unwrap().is_empty());
        });
    }

    #[test]
    fn a_container_has_one_request_at_a_time_and_the_others_are_not_held_up() {
        let all = InFlight::default();
        let first = all.begin("a", LONG).unwrap();
        assert!(all.begin("a", Duration::ZERO).is_none());
        let _other = all.begin("b", Duration::ZERO).unwrap();
        let _garbage = [all.begin("", Duration::ZERO), all.begin("", Duration::ZERO)];
        std::thread::scope(|scope| {
            let second = scope.spawn(|| all.begin("a", LONG).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(
            all.wait_for(&HashSet::from(["a".to_owned()]), LONG)
                .is_empty()
        );
    }
}
