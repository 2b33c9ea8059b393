//! What has been said before: the same again is counted and not told as news, and nothing is said
//! without end. Pure. The numbers are those of `EventCorrelator` in `client-go/tools/record`, but
//! the limit counts for each reason of its own, so that a volume that cannot be mounted does not
//! hide that the pod was killed.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Events of one reason about one object that may follow each other at once.
const BURST: u32 = 25;
/// After a burst, one in this time.
const REFILL: Duration = Duration::from_mins(5);
/// Entries that are remembered of each kind (`maxLruCacheEntries`).
const ENTRIES_MAX: usize = 4096;

/// What makes two Events the same, but for their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Said {
    /// About which object.
    pub(super) subject: Subject,
    pub(super) field_path: Option<String>,
    pub(super) message: String,
}

/// What shares one limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) reason: String,
}

/// The Event of something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The Event's name.
    pub(super) name: String,
    pub(super) first: Timestamp,
    pub(super) count: i32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    said: u32,
    since: Instant,
}

/// What was said lately.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    said: Recent<Said, Counted>,
    buckets: Recent<Subject, Bucket>,
}

impl Repeats {
    /// How this is to be told; `None` if enough was said of it. `fresh` names a new Event.
    pub(super) fn tell(
        &mut self,
        said: Said,
        (at, now): (Timestamp, Instant),
        fresh: impl FnOnce() -> String,
    ) -> Option<Counted> {
        let bucket = Bucket {
            said: 0,
            since: now,
        };
        let bucket = self.buckets.entry(said.subject.clone(), now, || bucket);
        bucket.refill(now);
        if bucket.said >= BURST {
            return None;
        }
        bucket.said += 1;
        let new = || Counted {
            name: fresh(),
            first: at,
            count: 0,
        };
        let counted = self.said.entry(said, now, new);
        counted.count = counted.count.saturating_add(1);
        Some(counted.clone())
    }
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_secs() / REFILL.as_secs();
        let refills = u32::try_from(passed).unwrap_or(u32::MAX);
        if refills > 0 {
            self.said = self.said.saturating_sub(refills);
            self.since = now;
        }
    }
}

/// A map that forgets what was not used for the longest time.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (V, Instant)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn entry(&mut self, key: K, now: Instant, new: impl FnOnce() -> V) -> &mut V {
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
            self.forget_oldest();
        }
        let (value, used) = self.entries.entry(key).or_insert_with(|| (new(), now));
        *used = now;
        value
    }

    /// Half of all, so that it is seldom done.
    fn forget_oldest(&mut self) {
        let mut times: Vec<_> = self.entries.values().map(|(_, used)| *used).collect();
        let middle = times.len() / 2;
        let (_, limit, _) = times.select_nth_unstable(middle);
        let limit = *limit;
        self.entries.retain(|_, (_, used)| *used > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(uid: &str, reason: &str, message: &str) -> Said {
        Said {
            subject: Subject {
                namespace: "default".into(),
                name: uid.to_owned(),
                uid: uid.to_owned(),
                reason: reason.to_owned(),
            },
            field_path: None,
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_same_again_is_counted_under_its_name() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut tell = |message: &str, second: u64| {
            let at = Timestamp::from_second(1000 + i64::try_from(second).unwrap()).unwrap();
            let now = start + Duration::from_secs(second);
            repeats.tell(said("a", "FailedMount", message), (at, now), || {
                format!("a.{second}")
            })
        };
        assert_eq!(tell("x", 0).unwrap().count, 1);
        let again = tell("x", 60).unwrap();
        assert_eq!((again.name.as_str(), again.count), ("a.0", 2));
        assert_eq!(again.first, Timestamp::from_second(1000).unwrap());
        assert_eq!(tell("y", 61).unwrap().name, "a.61");
    }

    #[test]
    fn what_fails_without_end_is_told_every_five_minutes_and_hides_nothing_else() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut tell = |reason: &str, number: u64| {
            let one = said("a", reason, &number.to_string());
            let now = start + Duration::from_secs(20 * number);
            repeats.tell(one, (Timestamp::UNIX_EPOCH, now), String::new)
        };
        // A day of one try every 20 seconds, each with other words.
        let told = (0..4320).filter(|number| tell("FailedMount", *number).is_some());
        let told = told.count();
        assert!((280..=330).contains(&told), "{told}");
        assert!(tell("Killing", 4320).is_some());
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        for number in 0..10_000_u64 {
            let now = start + Duration::from_millis(number);
            let one = said(&number.to_string(), "Killing", "x");
            repeats.tell(one, (Timestamp::UNIX_EPOCH, now), String::new);
            assert!(repeats.said.entries.len() <= ENTRIES_MAX);
        }
    }
}
