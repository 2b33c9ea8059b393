//! Operations against the store and against a plain map, compared after each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use swiftlet_store::{
    ChangeKind, Durability, Expect, Limits, Op, Revision, Store, StoreOptions, Template, TooOld,
    Watch, WriteError,
};

/// Changes that the ring keeps: few, so that watches fall behind.
const RING_CHANGES: usize = 8;
const PREFIXES: [&str; 4] = ["/", "/a/", "/b/", "/a/1"];

#[derive(Clone, Debug)]
enum Compare {
    Any,
    Absent,
    Current,
    Stale,
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u8,
        compare: Compare,
        durability: Durability,
        slot: bool,
    },
    Delete {
        key: u8,
        compare: Compare,
        last: bool,
    },
    Watch {
        prefix: usize,
        back: u64,
    },
    Poll {
        watch: usize,
    },
    Reopen,
}

fn compare() -> impl Strategy<Value = Compare> {
    prop_oneof![
        4 => Just(Compare::Any),
        1 => Just(Compare::Absent),
        3 => Just(Compare::Current),
        1 => Just(Compare::Stale),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let durability = prop_oneof![3 => Just(Durability::Journal), 1 => Just(Durability::Memory)];
    prop_oneof![
        10 => (0..12_u8, compare(), durability, any::<bool>()).prop_map(
            |(key, compare, durability, slot)| Step::Put { key, compare, durability, slot }
        ),
        4 => (0..12_u8, compare(), any::<bool>())
            .prop_map(|(key, compare, last)| Step::Delete { key, compare, last }),
        3 => (0..PREFIXES.len(), 0..14_u64).prop_map(|(prefix, back)| Step::Watch { prefix, back }),
        6 => (0..8_usize).prop_map(|watch| Step::Poll { watch }),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    value: String,
    revision: u64,
    created: u64,
    durable: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Told {
    revision: u64,
    key: String,
    kind: ChangeKind,
    value: String,
    previous: Option<String>,
}

/// What the store must be, kept in the simplest way.
struct Oracle {
    map: BTreeMap<String, Stored>,
    changes: Vec<Told>,
    /// Everything up to here has been forgotten by a restart.
    forgotten: u64,
    revision: u64,
    used_memory: bool,
}

struct Run {
    dir: tempfile::TempDir,
    store: Store,
    oracle: Oracle,
    watches: Vec<(Watch, &'static str, u64)>,
    written: u64,
}

fn options(dir: &tempfile::TempDir) -> StoreOptions {
    let limits = Limits {
        ring_changes: RING_CHANGES,
        segment_bytes: 700,
        ..Limits::default()
    };
    StoreOptions {
        limits,
        ..StoreOptions::new(dir.path())
    }
}

fn name(key: u8) -> String {
    format!("/{}/{}", if key.is_multiple_of(2) { "a" } else { "b" }, key)
}

impl Oracle {
    /// The lowest revision that a watch can start after.
    fn oldest(&self) -> u64 {
        match self.changes.len().checked_sub(RING_CHANGES + 1) {
            Some(last_dropped) => self.changes[last_dropped].revision,
            None => self.forgotten,
        }
    }

    fn after(&self, prefix: &str, after: u64) -> Result<Vec<Told>, TooOld> {
        let oldest = self.oldest();
        if after < oldest {
            return Err(TooOld {
                requested: Revision(after),
                oldest: Revision(oldest),
            });
        }
        let told = self.changes.iter();
        Ok(told
            .filter(|c| c.revision > after && c.key.starts_with(prefix))
            .cloned()
            .collect())
    }
}

impl Run {
    async fn begin() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, report) = Store::open(options(&dir)).await.unwrap();
        assert_eq!(report.revision, Revision::EMPTY);
        let oracle = Oracle {
            map: BTreeMap::new(),
            changes: Vec::new(),
            forgotten: 1,
            revision: 1,
            used_memory: false,
        };
        Self {
            dir,
            store,
            oracle,
            watches: Vec::new(),
            written: 0,
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Put {
                key,
                compare,
                durability,
                slot,
            } => {
                self.put(&name(key), &compare, durability, slot).await;
            }
            Step::Delete { key, compare, last } => self.delete(&name(key), &compare, last).await,
            Step::Watch { prefix, back } => {
                let after = self.oracle.revision.saturating_sub(back);
                let watch = self.store.watch(PREFIXES[prefix], Revision(after));
                let oldest = self.oracle.oldest();
                assert_eq!(
                    watch.is_err(),
                    after < oldest,
                    "after {after}, oldest {oldest}"
                );
                if let Ok(watch) = watch {
                    self.watches.push((watch, PREFIXES[prefix], after));
                }
            }
            Step::Poll { watch } if watch < self.watches.len() => self.poll(watch).await,
            Step::Poll { .. } => (),
            Step::Reopen => self.reopen().await,
        }
    }

    fn expect(&self, key: &str, compare: &Compare) -> (Expect, bool) {
        let current = self.oracle.map.get(key).map(|stored| stored.revision);
        match compare {
            Compare::Any => (Expect::Any, true),
            Compare::Absent => (Expect::Absent, current.is_none()),
            Compare::Current => {
                let revision = current.unwrap_or(self.oracle.revision);
                (Expect::At(Revision(revision)), current.is_some())
            }
            Compare::Stale => (Expect::At(Revision(0)), false),
        }
    }

    async fn put(&mut self, key: &str, compare: &Compare, durability: Durability, slot: bool) {
        self.written += 1;
        let text = format!("value {} of ", self.written);
        let value = if slot {
            Template::with_slot(text.clone(), text.len())
        } else {
            Template::plain(text.clone())
        };
        let (expect, holds) = self.expect(key, compare);
        let op = Op::Put {
            key: key.into(),
            value,
            expect,
            durability,
        };
        let before = self.oracle.map.get(key).cloned();
        let result = self.store.write(op).await;
        if !holds {
            return self.conflict(result, before);
        }
        let entry = result.unwrap();
        self.oracle.revision += 1;
        let revision = self.oracle.revision;
        let value = if slot {
            format!("{text}{revision}")
        } else {
            text
        };
        let durable = durability == Durability::Journal
            || before.as_ref().is_some_and(|before| before.durable);
        self.oracle.used_memory |= !durable;
        let created = before.as_ref().map_or(revision, |before| before.created);
        let stored = Stored {
            value: value.clone(),
            revision,
            created,
            durable,
        };
        assert_eq!((entry.revision.0, entry.created.0), (revision, created));
        assert_eq!(entry.value, value);
        self.oracle.map.insert(key.into(), stored);
        let kind = if before.is_some() {
            ChangeKind::Updated
        } else {
            ChangeKind::Created
        };
        let previous = before.map(|before| before.value);
        self.oracle.changes.push(Told {
            revision,
            key: key.into(),
            kind,
            value,
            previous,
        });
    }

    async fn delete(&mut self, key: &str, compare: &Compare, last: bool) {
        let (expect, holds) = self.expect(key, compare);
        let last = last.then(|| Template::with_slot("gone at ", 8));
        let op = Op::Delete {
            key: key.into(),
            expect,
            last: last.clone(),
        };
        let before = self.oracle.map.get(key).cloned();
        let result = self.store.write(op).await;
        let Some(before) = before.clone().filter(|_| holds) else {
            return self.conflict(result, before);
        };
        let entry = result.unwrap();
        self.oracle.revision += 1;
        let revision = self.oracle.revision;
        self.oracle.used_memory |= !before.durable;
        let value = match last {
            Some(_) => format!("gone at {revision}"),
            None => before.value.clone(),
        };
        assert_eq!(
            (entry.revision.0, entry.created.0),
            (revision, before.created)
        );
        assert_eq!(entry.value, value);
        self.oracle.map.remove(key);
        let (kind, previous) = (ChangeKind::Deleted, Some(before.value));
        self.oracle.changes.push(Told {
            revision,
            key: key.into(),
            kind,
            value,
            previous,
        });
    }

    fn conflict(&self, result: Result<swiftlet_store::Entry, WriteError>, before: Option<Stored>) {
        let Err(WriteError::Conflict { current }) = result else {
            panic!("expected a conflict, got {result:?}");
        };
        assert_eq!(
            current.map(|current| current.revision.0),
            before.map(|b| b.revision)
        );
        assert_eq!(self.store.snapshot().revision().0, self.oracle.revision);
    }

    async fn poll(&mut self, index: usize) {
        let (watch, prefix, position) = &mut self.watches[index];
        let expected = self.oracle.after(prefix, *position);
        let got = match &expected {
            // Nothing is coming, so do not wait for it.
            Ok(changes) if changes.is_empty() => watch.take_ready(),
            _ => watch.next().await,
        };
        let got = got.map(|changes| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let told = changes.iter().map(|change| Told {
                revision: change.revision.0,
                key: change.key.to_string(),
                kind: change.kind,
                value: text(&change.value),
                previous: change.previous.as_deref().map(text),
            });
            told.collect()
        });
        assert_eq!(got, expected);
        if got.is_err() {
            self.watches.remove(index);
        } else {
            *position = self.oracle.revision.max(*position);
            assert_eq!(watch.position().0, *position);
        }
    }

    async fn reopen(&mut self) {
        self.store.shutdown().await;
        let (store, report) = Store::open(options(&self.dir)).await.unwrap();
        let oracle = &mut self.oracle;
        oracle.map.retain(|_, stored| stored.durable);
        assert_eq!((report.torn_bytes, report.entries), (0, oracle.map.len()));
        if oracle.used_memory {
            assert!(report.revision.0 >= oracle.revision);
        } else {
            assert_eq!(report.revision.0, oracle.revision);
        }
        oracle.revision = report.revision.0;
        oracle.forgotten = report.revision.0;
        oracle.changes.clear();
        self.store = store;
        self.watches.clear();
    }

    fn compare(&self) {
        let snapshot = self.store.snapshot();
        assert_eq!(snapshot.revision().0, self.oracle.revision);
        assert_eq!(snapshot.oldest().0, self.oracle.oldest());
        assert_eq!(snapshot.len(), self.oracle.map.len());
        for prefix in PREFIXES {
            let expected = self
                .oracle
                .map
                .iter()
                .filter(|(key, _)| key.starts_with(prefix));
            let expected: Vec<_> = expected
                .map(|(key, s)| (key.clone(), s.value.clone(), s.revision, s.created))
                .collect();
            let got = snapshot.range(prefix).map(|entry| {
                let value = String::from_utf8(entry.value.to_vec()).unwrap();
                (
                    entry.key.to_string(),
                    value,
                    entry.revision.0,
                    entry.created.0,
                )
            });
            assert_eq!(got.collect::<Vec<_>>(), expected);
        }
        for key in (0..12).map(name) {
            let got = snapshot.get(&key).map(|entry| entry.revision.0);
            assert_eq!(got, self.oracle.map.get(&key).map(|stored| stored.revision));
        }
        let page = snapshot
            .range_from("/a/", Some("/a/2"))
            .map(|entry| entry.key.to_string());
        let keys = self.oracle.map.keys().filter(|key| key.starts_with("/a/"));
        let keys: Vec<_> = keys.filter(|key| key.as_str() > "/a/2").cloned().collect();
        assert_eq!(page.collect::<Vec<_>>(), keys);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_a_map_with_a_history(steps in prop::collection::vec(step(), 0..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::begin().await;
            for step in steps {
                run.step(step).await;
                run.compare();
            }
            run.store.shutdown().await;
        });
    }
}
