//! Keys to work on.
//!
//! A key that is added twice is worked on once; a key that is added while a worker has it is worked
//! on again afterwards, never by two workers at a time. Keys may be added with a delay, or rate
//! limited by their own failures, with client-go's figures.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backoff::delay_after;

/// First delay of a failing key (client-go's `DefaultControllerRateLimiter`).
pub const RETRY_FIRST: Duration = Duration::from_millis(5);
/// Longest delay of a failing key (the same).
pub const RETRY_MOST: Duration = Duration::from_secs(1000);
/// Longest delay of all: what is meant to be later is looked at once too often, and a time far
/// away (a toleration of 2^63 seconds) cannot leave the clock's range.
const DELAY_MOST: Duration = Duration::from_hours(24);

/// A queue of keys. Cheap to clone; all clones are one queue.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    // A lock and not an owner task: each critical section is a few map operations and never awaits,
    // and a task in between would add two wake-ups to each key.
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when its worker is done.
    dirty: HashSet<K>,
    processing: HashSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    closed: bool,
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Notify::new(),
            }),
        }
    }

    /// Adds a key.
    pub fn add(&self, key: K) {
        self.lock().add(key);
        self.shared.wake.notify_one();
    }

    /// Adds a key after a delay; of several delays the shortest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay.min(DELAY_MOST);
        self.lock().add_at(key, at);
        self.shared.wake.notify_one();
    }

    /// Adds a key that failed, after a delay that doubles with each failure; answers the delay.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let mut state = self.lock();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        let delay = delay_after(RETRY_FIRST, RETRY_MOST, *failures);
        *failures = failures.saturating_add(1);
        state.add_at(key, Instant::now() + delay);
        drop(state);
        self.shared.wake.notify_one();
        delay
    }

    /// The key works again: its next failure starts at the first delay.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// How often the key has failed since it was forgotten.
    pub fn failures(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// The next key; the caller says [`WorkQueue::done`] afterwards. `None` when the queue is
    /// closed.
    pub async fn next(&self) -> Option<K> {
        loop {
            let deadline = {
                let mut state = self.lock();
                if state.closed {
                    // Each waiter wakes the next one.
                    self.shared.wake.notify_one();
                    return None;
                }
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() || !state.delayed.is_empty() {
                        // A permit is one, however many keys were added; and somebody else must now
                        // watch the next deadline.
                        self.shared.wake.notify_one();
                    }
                    return Some(key);
                }
                state.delayed.first().map(|(deadline, _)| *deadline)
            };
            let woken = self.shared.wake.notified();
            match deadline {
                Some(deadline) => {
                    let _ = tokio::time::timeout_at(deadline, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// The worker is done with the key; if it was added meanwhile, it is ready again.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// Ends the queue: every worker gets `None`.
    pub fn close(&self) {
        self.lock().closed = true;
        self.shared.wake.notify_one();
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.lock().ready.len()
    }

    /// Whether none is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // A panic inside leaves the maps consistent enough: at worst a key is worked on once more.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, key: K) {
        if !self.dirty.insert(key.clone()) {
            return;
        }
        if !self.processing.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if let Some(&known) = self.due.get(&key) {
            if known <= at {
                return;
            }
            self.delayed.remove(&(known, key.clone()));
        }
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key));
    }

    fn promote(&mut self, now: Instant) {
        while let Some((at, key)) = self.delayed.pop_first() {
            if at > now {
                self.delayed.insert((at, key));
                return;
            }
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }
}

impl<K: Clone + Eq + Hash + Ord> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}
