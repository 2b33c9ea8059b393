//! What writers and watches see of each other.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use swiftlet_store::{
    ChangeKind, Durability, Expect, Limits, Op, Revision, Store, StoreOptions, Template, WriteError,
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_sees_every_change_of_its_prefix_once_and_in_order() {
    const WRITERS: usize = 8;
    const WRITES: usize = 500;
    let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
    let start = store.snapshot().revision();
    let watches: Vec<_> = (0..WRITERS)
        .chain([usize::MAX])
        .map(|index| {
            let prefix = if index == usize::MAX {
                "/".into()
            } else {
                format!("/{index}/")
            };
            let mut watch = store.watch(&prefix, start).unwrap();
            tokio::spawn(async move {
                let expected = if index == usize::MAX {
                    WRITERS * WRITES
                } else {
                    WRITES
                };
                let mut changes = Vec::new();
                while changes.len() < expected {
                    changes.extend(watch.next().await.unwrap());
                }
                (prefix, changes)
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|index| {
            let store = store.clone();
            tokio::spawn(async move {
                for count in 0..WRITES {
                    store
                        .write(put(&format!("/{index}/k"), count.to_string()))
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watch in watches {
        // The limit only turns a lost wake-up into a failure.
        let seen = tokio::time::timeout(Duration::from_mins(1), watch).await;
        let (prefix, changes) = seen.expect("a wake-up was lost").unwrap();
        assert!(changes.is_sorted_by(|a, b| a.revision < b.revision));
        let mut counts = HashMap::new();
        for change in changes {
            assert!(change.key.as_str().starts_with(&prefix));
            let count = counts.entry(change.key.clone()).or_insert(0);
            assert_eq!(change.value, count.to_string());
            *count += 1;
        }
        assert!(counts.values().all(|count| *count == WRITES));
    }
}

#[tokio::test]
async fn a_watch_tells_creation_change_and_deletion_with_the_value_before() {
    let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
    let mut watch = store.watch("/a", store.snapshot().revision()).unwrap();
    store.write(put("/a", "1")).await.unwrap();
    store.write(put("/b", "other")).await.unwrap();
    store.write(put("/a", "2")).await.unwrap();
    let last = Some(Template::with_slot("gone at ", 8));
    let gone = Op::Delete {
        key: "/a".into(),
        expect: Expect::At(Revision(4)),
        last,
    };
    store.write(gone).await.unwrap();
    let changes = watch.next().await.unwrap();
    let told: Vec<_> = changes
        .iter()
        .map(|c| (c.revision.0, c.kind, c.value.clone(), c.previous.clone()))
        .collect();
    let expected = [
        (2, ChangeKind::Created, "1".into(), None),
        (4, ChangeKind::Updated, "2".into(), Some("1".into())),
        (5, ChangeKind::Deleted, "gone at 5".into(), Some("2".into())),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_watch_from_a_revision_to_come_waits_for_it() {
    let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
    let mut watch = store.watch("/", Revision(3)).unwrap();
    for count in 2..=4 {
        store.write(put("/a", count.to_string())).await.unwrap();
    }
    let changes = watch.next().await.unwrap();
    assert_eq!(
        changes.iter().map(|c| c.revision.0).collect::<Vec<_>>(),
        [4]
    );
}

#[tokio::test]
async fn a_snapshot_never_changes() {
    let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
    store.write(put("/a", "1")).await.unwrap();
    let before = store.snapshot();
    store.write(put("/a", "2")).await.unwrap();
    store.write(put("/b", "3")).await.unwrap();
    assert_eq!((before.len(), before.revision()), (1, Revision(2)));
    assert_eq!(before.get("/a").unwrap().value, "1");
}

#[tokio::test]
async fn writers_at_the_same_time_share_a_sync() {
    const WRITERS: u64 = 64;
    const WRITES: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreOptions::new(dir.path())).await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|index| {
            let store = store.clone();
            tokio::spawn(async move {
                for count in 0..WRITES {
                    store
                        .write(put(&format!("/{index}"), count.to_string()))
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.revision, Revision(1 + WRITERS * WRITES));
    assert!(stats.syncs >= WRITES, "{stats:?}");
    assert!(stats.syncs <= WRITERS * WRITES / 16, "{stats:?}");
    store.shutdown().await;
}

#[tokio::test]
async fn a_full_queue_gives_the_operation_back() {
    let limits = Limits {
        queue_ops: 1,
        ..Limits::default()
    };
    let options = StoreOptions {
        limits,
        ..StoreOptions::in_memory()
    };
    let (store, _) = Store::open(options).await.unwrap();
    // Both are asked before the writer's task gets its turn.
    let (first, second) = tokio::join!(
        store.try_write(put("/a", "1")),
        store.try_write(put("/b", "2"))
    );
    assert!(first.is_ok());
    let Err(WriteError::Full(op)) = second else {
        panic!("{second:?}")
    };
    assert_eq!(op, put("/b", "2"));
    store.write(op).await.unwrap();
}

#[tokio::test]
async fn what_is_too_large_is_refused_without_a_revision() {
    let (store, _) = Store::open(StoreOptions::in_memory()).await.unwrap();
    let limit = Limits::default().object_bytes;
    let refused = store.write(put("/a", vec![0; limit + 1])).await;
    assert!(
        matches!(refused, Err(WriteError::TooLarge { size_bytes, limit_bytes })
            if (size_bytes, limit_bytes) == (limit + 1, limit))
    );
    assert_eq!(
        store
            .write(put("/a", vec![0; limit]))
            .await
            .unwrap()
            .revision,
        Revision(2)
    );
}

/// A small file system of its own, so that a full disk is a real one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        mount(
            Some("tmpfs"),
            dir.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=256k"),
        )
        .expect("this test needs root");
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).expect("it is mounted");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    let disk = SmallDisk::new();
    let dir = disk.path().join("store");
    let (store, _) = Store::open(StoreOptions::new(&dir)).await.unwrap();
    store.write(put("/a", "kept")).await.unwrap();
    store
        .write(put_as("/lease", "0", Durability::Memory))
        .await
        .unwrap();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 200 << 10]).unwrap();
    let before = store.stats();
    let mut watch = store.watch("/", before.revision).unwrap();

    let refused = store.write(put("/a", vec![b'x'; 100 << 10])).await;
    let Err(WriteError::Storage(error)) = refused else {
        panic!("{refused:?}")
    };
    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!(store.stats().revision, before.revision);
    assert_eq!(store.snapshot().get("/a").unwrap().value, "kept");
    assert!(watch.take_ready().unwrap().is_empty());

    // In one batch with a write that is refused, a lease is renewed all the same.
    let (refused, renewed) = tokio::join!(
        store.write(put("/b", vec![b'x'; 100 << 10])),
        store.write(put_as("/lease", "1", Durability::Memory)),
    );
    assert!(matches!(refused, Err(WriteError::Storage(_))));
    assert_eq!(renewed.unwrap().revision.0, before.revision.0 + 1);

    std::fs::remove_file(&ballast).unwrap();
    let entry = store.write(put("/a", "after")).await.unwrap();
    assert_eq!(entry.revision.0, before.revision.0 + 2);
    assert_eq!(watch.next().await.unwrap().len(), 2);
    store.shutdown().await;
    let (store, report) = Store::open(StoreOptions::new(&dir)).await.unwrap();
    assert_eq!((report.entries, report.torn_bytes), (1, 0));
    assert_eq!(store.snapshot().get("/a").unwrap().value, "after");
    store.shutdown().await;
}
