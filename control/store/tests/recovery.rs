//! What is on disk, and what is made of it when it is damaged.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use swiftlet_store::{
    Durability, Expect, Limits, Op, RecoveryReport, Revision, Store, StoreError, StoreOptions,
    Template, WriteError,
};

fn put_as(key: &str, value: impl Into<Vec<u8>>, durability: Durability) -> Op {
    let value = Template::plain(value.into());
    Op::Put {
        key: key.into(),
        value,
        expect: Expect::Any,
        durability,
    }
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> Op {
    put_as(key, value, Durability::Journal)
}

async fn open(dir: &Path) -> (Store, RecoveryReport) {
    Store::open(StoreOptions::new(dir)).await.unwrap()
}

async fn refusal(dir: &Path) -> StoreError {
    match Store::open(StoreOptions::new(dir)).await {
        Ok((_, report)) => panic!("opened with {report:?}"),
        Err(error) => error,
    }
}

/// The files of one kind, in order.
fn files(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_kind = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(kind)
    };
    let mut files: Vec<_> = names.filter(of_kind).collect();
    files.sort();
    files
}

/// A journal with three writes, and where each of them ends.
async fn three_writes(dir: &Path, last: Vec<u8>) -> (PathBuf, Vec<u8>, [usize; 4]) {
    let (store, _) = open(dir).await;
    let mut ends = [usize::try_from(store.stats().journal_bytes).unwrap(); 4];
    let values = [b"first".to_vec(), b"second".to_vec(), last];
    for (index, value) in values.into_iter().enumerate() {
        store
            .write(put(&format!("/k/{index}"), value))
            .await
            .unwrap();
        ends[index + 1] = usize::try_from(store.stats().journal_bytes).unwrap();
    }
    store.shutdown().await;
    let path = files(dir, "journal-").pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), ends[3]);
    (path, bytes, ends)
}

#[tokio::test]
async fn what_was_written_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, report) = open(dir.path()).await;
    assert_eq!((report.entries, report.revision), (0, Revision::EMPTY));
    let first = store.write(put("/a", "1")).await.unwrap();
    store.write(put("/b", "2")).await.unwrap();
    let second = store.write(put("/a", "3")).await.unwrap();
    let gone = Op::Delete {
        key: "/b".into(),
        expect: Expect::Any,
        last: None,
    };
    store.write(gone).await.unwrap();
    store.shutdown().await;
    let (store, report) = open(dir.path()).await;
    assert_eq!(
        (report.entries, report.records, report.torn_bytes),
        (1, 4, 0)
    );
    assert_eq!(report.revision, Revision(5));
    let snapshot = store.snapshot();
    assert_eq!(snapshot.get("/a"), Some(&second));
    assert_eq!(second.created, first.revision);
}

#[tokio::test]
async fn a_torn_tail_is_cut_wherever_it_was_torn() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes, ends) = three_writes(dir.path(), b"third".to_vec()).await;
    for cut in ends[2]..ends[3] {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (store, report) = open(dir.path()).await;
        assert_eq!(
            (report.entries, report.revision),
            (2, Revision(3)),
            "cut at {cut}"
        );
        assert_eq!(report.torn_bytes, (cut - ends[2]) as u64);
        // The next write takes the place, and the revision that nobody was told.
        let entry = store.write(put("/k/2", "third")).await.unwrap();
        assert_eq!(entry.revision, Revision(4));
        store.shutdown().await;
        let (store, report) = open(dir.path()).await;
        assert_eq!((report.entries, report.torn_bytes), (3, 0), "cut at {cut}");
        store.shutdown().await;
    }
}

#[tokio::test]
async fn pages_that_never_reached_the_disk_are_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut bytes, ends) = three_writes(dir.path(), vec![b'x'; 8192]).await;
    bytes[ends[2] + 2000..ends[2] + 6000].fill(0);
    fs::write(&path, &bytes).unwrap();
    let (store, report) = open(dir.path()).await;
    assert_eq!(
        (report.entries, report.torn_bytes),
        (2, (ends[3] - ends[2]) as u64)
    );
    store.shutdown().await;
}

#[tokio::test]
async fn a_flipped_byte_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes, ends) = three_writes(dir.path(), b"third".to_vec()).await;
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let error = refusal(dir.path()).await;
        let begin = ends
            .iter()
            .rev()
            .find(|end| **end <= at)
            .copied()
            .unwrap_or(0);
        match &error {
            StoreError::Corrupt { file, offset, .. } => {
                assert_eq!((file, *offset), (&path, begin as u64), "byte {at}");
            }
            StoreError::Version { file, .. } => assert_eq!(file, &path),
            other => panic!("byte {at}: {other}"),
        }
        assert!(error.to_string().contains(path.to_str().unwrap()));
        assert_eq!(
            fs::read(&path).unwrap(),
            bytes,
            "a refused file is left as it is"
        );
    }
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path()).await;
    let error = refusal(dir.path()).await;
    assert!(
        matches!(&error, StoreError::InUse { dir: used } if used == dir.path()),
        "{error}"
    );
    store.shutdown().await;
    open(dir.path()).await.0.shutdown().await;
}

#[tokio::test]
async fn memory_writes_move_the_revision_and_leave_the_journal_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path()).await;
    let lease = |count: usize| put_as("/lease/node", count.to_string(), Durability::Memory);
    store.write(lease(0)).await.unwrap();
    let before = store.stats();
    for count in 1..=100 {
        store.write(lease(count)).await.unwrap();
    }
    let after = store.stats();
    assert_eq!(after.revision.0, before.revision.0 + 100);
    assert_eq!(
        (after.syncs, after.journal_bytes),
        (before.syncs, before.journal_bytes)
    );
    assert_eq!(store.snapshot().get("/lease/node").unwrap().value, "100");
    store.shutdown().await;
    let (store, report) = open(dir.path()).await;
    assert_eq!(report.entries, 0);
    assert!(
        report.revision >= after.revision,
        "revisions of leases are not handed out again"
    );
    store.shutdown().await;
}

#[tokio::test]
async fn a_journalled_key_stays_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path()).await;
    store.write(put("/a", "old")).await.unwrap();
    store
        .write(put_as("/a", "new", Durability::Memory))
        .await
        .unwrap();
    store.shutdown().await;
    let (store, _) = open(dir.path()).await;
    assert_eq!(store.snapshot().get("/a").unwrap().value, "new");
    store.shutdown().await;
}

/// Writes until there have been several snapshots; returns what must be there.
async fn compacted(dir: &Path) -> Vec<(String, String)> {
    let limits = Limits {
        segment_bytes: 4096,
        ..Limits::default()
    };
    let options = StoreOptions {
        limits,
        ..StoreOptions::new(dir)
    };
    let (store, _) = Store::open(options).await.unwrap();
    for count in 0..400 {
        let value = format!("{count} {}", "x".repeat(100));
        store
            .write(put(&format!("/k/{:03}", count % 90), value))
            .await
            .unwrap();
    }
    store.shutdown().await;
    let key = |count: usize| format!("/k/{:03}", count % 90);
    let mut all: Vec<_> = (310..400)
        .map(|count| (key(count), format!("{count} {}", "x".repeat(100))))
        .collect();
    all.sort();
    all
}

fn contents(store: &Store) -> Vec<(String, String)> {
    let snapshot = store.snapshot();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    snapshot
        .range("/")
        .map(|entry| (entry.key.to_string(), text(&entry.value)))
        .collect()
}

#[tokio::test]
async fn a_snapshot_file_replaces_the_journal_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let expected = compacted(dir.path()).await;
    let (snapshots, journals) = (
        files(dir.path(), "snapshot-"),
        files(dir.path(), "journal-"),
    );
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    assert!(journals.len() <= 2, "{journals:?}");
    let (store, report) = open(dir.path()).await;
    assert_eq!(report.snapshot.as_ref(), snapshots.last());
    assert_eq!(report.revision, Revision(401));
    assert_eq!(contents(&store), expected);
    store.shutdown().await;
}

#[tokio::test]
async fn leftovers_of_a_crash_during_compaction_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let expected = compacted(dir.path()).await;
    let old = dir.path().join(format!("journal-{:020}", 1));
    fs::write(&old, "replaced long ago").unwrap();
    let unfinished = dir.path().join(format!("snapshot-{:020}.tmp", 99));
    fs::write(&unfinished, "half of it").unwrap();
    let (store, _) = open(dir.path()).await;
    assert_eq!(contents(&store), expected);
    assert!(!old.exists() && !unfinished.exists());
    store.shutdown().await;
}

#[tokio::test]
async fn a_damaged_snapshot_or_a_missing_journal_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    compacted(dir.path()).await;
    let snapshot = files(dir.path(), "snapshot-").pop().unwrap();
    let sound = fs::read(&snapshot).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [
        damaged,
        sound[..sound.len() - 1].to_vec(),
        sound[..40].to_vec(),
    ] {
        fs::write(&snapshot, bytes).unwrap();
        let error = refusal(dir.path()).await;
        assert!(matches!(&error, StoreError::Corrupt { file, .. } if *file == snapshot));
    }
    fs::write(&snapshot, sound).unwrap();
    let journal = files(dir.path(), "journal-").remove(0);
    fs::rename(&journal, dir.path().join("elsewhere")).unwrap();
    let error = refusal(dir.path()).await;
    assert!(
        matches!(&error, StoreError::MissingSegment { file } if *file == journal),
        "{error}"
    );
}

#[tokio::test]
async fn after_a_shutdown_writes_are_refused_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path()).await;
    store.write(put("/a", "1")).await.unwrap();
    store.shutdown().await;
    store.shutdown().await;
    assert!(matches!(
        store.write(put("/a", "2")).await,
        Err(WriteError::Closed)
    ));
    assert_eq!(store.snapshot().get("/a").unwrap().value, "1");
}
