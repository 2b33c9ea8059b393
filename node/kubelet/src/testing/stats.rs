//! What the fake node has left, and what it remembers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use swiftlet_model::checkpoints::{CheckpointError, Checkpoints};
use swiftlet_model::credentials::NodeCredentials;
use swiftlet_model::ids::PodUid;
use swiftlet_model::node_stats::{
    FilesystemLevel, Level, NodeStats, NodeStatsError, PodDisk, PodPaths, SystemOom,
};
use swiftlet_model::shutdown::{ShutdownError, ShutdownSignals};
use tokio::sync::{mpsc, watch};

/// A node with plenty of everything; tests take it away.
#[derive(Debug)]
pub(crate) struct FakeStats {
    pub(crate) memory: Mutex<Level>,
    pub(crate) pids: Mutex<Level>,
    pub(crate) disk: Mutex<FilesystemLevel>,
    pub(crate) pod_memory: Mutex<BTreeMap<PodUid, u64>>,
    pub(crate) pod_disk: Mutex<BTreeMap<PodUid, PodDisk>>,
    pub(crate) container_memory: Mutex<BTreeMap<PodUid, BTreeMap<String, u64>>>,
    /// Files are many, and the disk is slow.
    pub(crate) pod_disk_hangs: Mutex<bool>,
    /// Whose files were asked for, and whether their layers were too.
    pub(crate) disk_asked: Mutex<BTreeMap<PodUid, bool>>,
    /// How often pods were asked for, of any kind.
    pub(crate) pod_reads: Mutex<usize>,
    pub(crate) hints: watch::Sender<u64>,
    /// Where a test says that the machine ran out of memory.
    pub(crate) ooms: mpsc::Sender<SystemOom>,
    told_ooms: Mutex<Option<mpsc::Receiver<SystemOom>>>,
}

const HALF: Level = Level {
    capacity: 1 << 40,
    available: 1 << 39,
};

impl Default for FakeStats {
    fn default() -> Self {
        let (ooms, told_ooms) = mpsc::channel(1);
        Self {
            memory: Mutex::new(HALF),
            pids: Mutex::new(HALF),
            disk: Mutex::new(FilesystemLevel {
                id: 1,
                bytes: HALF,
                inodes: HALF,
            }),
            pod_memory: Mutex::default(),
            pod_disk: Mutex::default(),
            pod_disk_hangs: Mutex::default(),
            disk_asked: Mutex::default(),
            container_memory: Mutex::default(),
            pod_reads: Mutex::default(),
            hints: watch::Sender::new(0),
            ooms,
            told_ooms: Mutex::new(Some(told_ooms)),
        }
    }
}

fn answer<T: Clone + Send + 'static>(of: &Mutex<T>) -> BoxFuture<'_, Result<T, NodeStatsError>> {
    let value = of.lock().unwrap().clone();
    async move { Ok(value) }.boxed()
}

impl NodeStats for FakeStats {
    fn memory(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>> {
        answer(&self.memory)
    }

    fn pids(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>> {
        answer(&self.pids)
    }

    fn node_filesystem(&self) -> BoxFuture<'_, Result<FilesystemLevel, NodeStatsError>> {
        answer(&self.disk)
    }

    fn filesystem<'a>(
        &'a self,
        _path: &'a Path,
    ) -> BoxFuture<'a, Result<FilesystemLevel, NodeStatsError>> {
        answer(&self.disk)
    }

    fn pod_memory<'a>(
        &'a self,
        _pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>> {
        *self.pod_reads.lock().unwrap() += 1;
        answer(&self.pod_memory)
    }

    fn container_memory<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<BTreeMap<String, u64>, NodeStatsError>> {
        let all = self.container_memory.lock().unwrap();
        let one = all.get(pod).cloned().unwrap_or_default();
        async move { Ok(one) }.boxed()
    }

    fn pod_pids<'a>(
        &'a self,
        _pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>> {
        *self.pod_reads.lock().unwrap() += 1;
        async { Ok(BTreeMap::new()) }.boxed()
    }

    fn pod_disk<'a>(&'a self, pod: &'a PodPaths) -> BoxFuture<'a, Result<PodDisk, NodeStatsError>> {
        *self.pod_reads.lock().unwrap() += 1;
        let mut asked = self.disk_asked.lock().unwrap();
        *asked.entry(pod.pod.clone()).or_default() |= pod.layers;
        if *self.pod_disk_hangs.lock().unwrap() {
            return std::future::pending().boxed();
        }
        let all = self.pod_disk.lock().unwrap();
        let one = all.get(&pod.pod).cloned().unwrap_or_default();
        async move { Ok(one) }.boxed()
    }

    fn memory_hints(&self, _available: u64) -> Option<watch::Receiver<u64>> {
        Some(self.hints.subscribe())
    }

    fn system_ooms(&self) -> Option<mpsc::Receiver<SystemOom>> {
        self.told_ooms.lock().unwrap().take()
    }
}

/// Checkpoints in memory.
#[derive(Debug, Default)]
pub(crate) struct FakeCheckpoints {
    pub(crate) all: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The disk is full.
    pub(crate) full: Mutex<bool>,
}

impl Checkpoints for FakeCheckpoints {
    fn load<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, CheckpointError>> {
        async move { Ok(self.all.lock().unwrap().get(name).cloned()) }.boxed()
    }

    fn save<'a>(
        &'a self,
        name: &'a str,
        content: &'a [u8],
    ) -> BoxFuture<'a, Result<(), CheckpointError>> {
        async move {
            if *self.full.lock().unwrap() {
                return Err(CheckpointError {
                    name: name.to_owned(),
                    cause: "no space left on device".to_owned(),
                });
            }
            let mut all = self.all.lock().unwrap();
            all.insert(name.to_owned(), content.to_vec());
            Ok(())
        }
        .boxed()
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), CheckpointError>> {
        async move {
            self.all.lock().unwrap().remove(name);
            Ok(())
        }
        .boxed()
    }

    fn load_all<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, Vec<u8>>, CheckpointError>> {
        async move {
            let all = self.all.lock().unwrap();
            let found = all.iter().filter(|(name, _)| name.starts_with(prefix));
            Ok(found.map(|(a, b)| (a.clone(), b.clone())).collect())
        }
        .boxed()
    }
}

/// A machine that is switched off when the test says so.
#[derive(Debug)]
pub(crate) struct FakeShutdown {
    pub(crate) begins: watch::Sender<bool>,
    seen: Mutex<watch::Receiver<bool>>,
    pub(crate) delay: Mutex<Option<Duration>>,
    pub(crate) released: Mutex<bool>,
}

impl Default for FakeShutdown {
    fn default() -> Self {
        let (begins, seen) = watch::channel(false);
        Self {
            begins,
            seen: Mutex::new(seen),
            delay: Mutex::default(),
            released: Mutex::default(),
        }
    }
}

impl ShutdownSignals for FakeShutdown {
    fn delay(&self, limit: Duration) -> BoxFuture<'_, Result<(), ShutdownError>> {
        *self.delay.lock().unwrap() = Some(limit);
        async { Ok(()) }.boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<bool>> {
        let mut seen = self.seen.lock().unwrap().clone();
        async move {
            seen.changed().await.ok()?;
            let begins = *seen.borrow_and_update();
            *self.seen.lock().unwrap() = seen;
            Some(begins)
        }
        .boxed()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        *self.released.lock().unwrap() = true;
        async {}.boxed()
    }
}

/// Files of credentials on the node.
#[derive(Debug, Default)]
pub(crate) struct FakeCredentials {
    pub(crate) documents: Mutex<Vec<BTreeMap<String, Vec<u8>>>>,
}

impl NodeCredentials for FakeCredentials {
    fn documents(&self) -> BoxFuture<'_, Vec<BTreeMap<String, Vec<u8>>>> {
        let all = self.documents.lock().unwrap().clone();
        async move { all }.boxed()
    }
}
