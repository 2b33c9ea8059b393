//! Kill -9 while many tasks write, again and again, on the same directory.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use swiftlet_store::{Durability, Entry, Expect, Limits, Op, Store, StoreOptions, Template};

const CHILD_DIR: &str = "SWIFTLET_STORE_CRASH_DIR";
const CHILD_LIFE: &str = "SWIFTLET_STORE_CRASH_LIFE";
const TEST: &str = "a_kill_at_any_moment_loses_nothing_acknowledged_and_reuses_no_revision";
const LIVES: u64 = 25;
const TASKS: u64 = 8;
/// Acknowledgements after which a child is killed, at most.
const LIFE_WRITES_MAX: u64 = 500;

/// What one key must be after the kill.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    revision: u64,
    /// Number of the write within its task; the value says the same.
    count: u64,
    deleted: bool,
}

fn options(dir: &Path) -> StoreOptions {
    // Short journal files, so that many kills hit a snapshot that is being written.
    let limits = Limits {
        segment_bytes: 8 << 10,
        ..Limits::default()
    };
    StoreOptions {
        limits,
        ..StoreOptions::new(dir)
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_acknowledged_and_reuses_no_revision() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    if let (Some(dir), Ok(life)) = (std::env::var_os(CHILD_DIR), std::env::var(CHILD_LIFE)) {
        // The same program, started again by the code below.
        return runtime.block_on(write_until_killed(Path::new(&dir), &life));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    let mut revisions = HashSet::new();
    let mut total = 0;
    for life in 0..LIVES {
        let (opened_at, lines) = live_and_die(dir.path(), life);
        assert!(
            revisions.iter().all(|seen| *seen <= opened_at),
            "life {life} went back"
        );
        total += lines.len();
        let mut on_their_way = HashSet::new();
        for task in 0..TASKS {
            let ours = |key: &str| key.split('/').nth(2) == Some(task.to_string().as_str());
            let counts = lines
                .iter()
                .filter(|line| ours(&line.0))
                .map(|line| line.1.count);
            let next = counts.max().map_or(0, |last| last + 1);
            on_their_way.insert((key_of(&life.to_string(), task, next), next));
        }
        for line in lines {
            assert!(
                revisions.insert(line.1.revision),
                "revision of {line:?} was reused"
            );
            // Memory writes are gone after a restart; their revisions are not free again.
            if !line.0.contains("/lease") {
                acknowledged.insert(line.0, line.1);
            }
        }
        runtime.block_on(check(
            dir.path(),
            &mut acknowledged,
            &on_their_way,
            &revisions,
        ));
    }
    assert!(
        total > 1000,
        "only {total} writes in all: the test tests nothing"
    );
}

/// Starts a child, kills it after a random number of answers, and returns the revision that it
/// began with and what it had acknowledged.
fn live_and_die(dir: &Path, life: u64) -> (u64, Vec<(String, Acknowledged)>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_LIFE, life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let opened_at = loop {
        let line = lines.next().expect("the child opens the store").unwrap();
        if let Some(revision) = line.strip_prefix("opened ") {
            break revision.parse().unwrap();
        }
    };
    let mut lines = lines.map_while(Result::ok).filter_map(|line| parse(&line));
    let patience = RandomState::new().hash_one(life) % LIFE_WRITES_MAX;
    let mut acknowledged: Vec<_> = lines
        .by_ref()
        .take(usize::try_from(patience).unwrap())
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // What it managed to say before it died.
    acknowledged.extend(lines);
    (opened_at, acknowledged)
}

/// Reads `ack <key> <revision> <count> <put|del>.`; the full stop shows that the line is whole.
fn parse(line: &str) -> Option<(String, Acknowledged)> {
    let mut words = line.strip_prefix("ack ")?.strip_suffix('.')?.split(' ');
    let key = words.next()?.to_owned();
    let revision = words.next()?.parse().ok()?;
    let count = words.next()?.parse().ok()?;
    Some((
        key,
        Acknowledged {
            revision,
            count,
            deleted: words.next()? == "del",
        },
    ))
}

/// Opens what the child left. Each key is what was acknowledged last, or what the one write
/// that was on its way would have made of it.
async fn check(
    dir: &Path,
    acknowledged: &mut HashMap<String, Acknowledged>,
    on_their_way: &HashSet<(String, u64)>,
    revisions: &HashSet<u64>,
) {
    let (store, report) = Store::open(options(dir)).await.unwrap();
    let highest = revisions.iter().copied().max().unwrap_or(0);
    assert!(
        report.revision.0 >= highest,
        "{report:?}, but {highest} was acknowledged"
    );
    let snapshot = store.snapshot();
    for (key, ack) in acknowledged.iter_mut() {
        let entry = snapshot.get(key);
        let stays = match entry {
            None => ack.deleted,
            Some(entry) => !ack.deleted && entry.revision.0 == ack.revision,
        };
        if stays {
            if let Some(entry) = entry {
                assert_eq!(count_in(entry), ack.count, "{key} has another value");
            }
            continue;
        }
        // Then the one write of its task that was not acknowledged any more is there.
        let count = entry.map_or(ack.count, count_in);
        let next = on_their_way
            .iter()
            .find(|(on_its_way, _)| on_its_way == key);
        let next = next
            .unwrap_or_else(|| panic!("{key} lost {ack:?}, has {entry:?}"))
            .1;
        match entry {
            None => assert!(is_deletion(next), "{key} lost {ack:?}"),
            Some(entry) => {
                assert_eq!(count, next, "{key} lost {ack:?}");
                assert!(
                    entry.revision.0 > ack.revision,
                    "{key} went back from {ack:?}"
                );
            }
        }
        let revision = entry.map_or(ack.revision, |entry| entry.revision.0);
        *ack = Acknowledged {
            revision,
            count,
            deleted: entry.is_none(),
        };
    }
    assert!(
        snapshot.range("/lease").next().is_none(),
        "leases are not journalled"
    );
    store.shutdown().await;
}

fn count_in(entry: &Entry) -> u64 {
    let text = std::str::from_utf8(&entry.value).unwrap();
    let (key, rest) = text.split_once('#').unwrap();
    assert_eq!(key, entry.key.as_str(), "the value of another key");
    let (count, rest) = rest.split_once('@').unwrap();
    let revision: String = rest.chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(
        revision,
        entry.revision.to_string(),
        "the value has another revision inside"
    );
    count.parse().unwrap()
}

async fn write_until_killed(dir: &Path, life: &str) {
    let (store, report) = Store::open(options(dir)).await.unwrap();
    say(&format!("\nopened {}\n", report.revision));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(write_for_ever(store.clone(), life.to_owned(), task)))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn write_for_ever(store: Store, life: String, task: u64) {
    for count in 0.. {
        let key = key_of(&life, task, count);
        let durability = if is_lease(&life, count) {
            Durability::Memory
        } else {
            Durability::Journal
        };
        let exists = store.snapshot().get(&key).is_some();
        let op = if exists && is_deletion(count) {
            Op::Delete {
                key: key.as_str().into(),
                expect: Expect::Any,
                last: None,
            }
        } else {
            let text = format!("{key}#{count}@");
            let slot = text.len();
            let value = Template::with_slot(text + &"x".repeat(300), slot);
            Op::Put {
                key: key.as_str().into(),
                value,
                expect: Expect::Any,
                durability,
            }
        };
        let kind = if matches!(op, Op::Delete { .. }) {
            "del"
        } else {
            "put"
        };
        let entry = store.write(op).await.unwrap();
        say(&format!("ack {key} {} {count} {kind}.\n", entry.revision));
    }
}

/// The key of a task's write number `count`.
fn key_of(life: &str, task: u64, count: u64) -> String {
    let place = if is_lease(life, count) {
        "lease"
    } else {
        "registry"
    };
    format!("/{place}/{task}/{}", count % 7)
}

/// Some lives end with leases alone, so that the last revisions are in no record.
fn is_lease(life: &str, count: u64) -> bool {
    count.is_multiple_of(5) || (life.ends_with(['3', '6', '9']) && count > 6)
}

/// Whether a write removes its key, if that exists.
fn is_deletion(count: u64) -> bool {
    count.is_multiple_of(3)
}

/// One write per line: after a kill the pipe holds whole lines.
fn say(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}
