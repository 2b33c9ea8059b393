//! How much of the node's memory, disk and process ids is left, and who uses it.
//!
//! Nothing here is asked for all the time: what the node has left is cheap (one file, one `statfs`)
//! and is looked at every few seconds; what single pods use is read only when a threshold is met.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use crate::ids::PodUid;

/// All of something, and what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// All of it.
    pub capacity: u64,
    /// What is left.
    pub available: u64,
}

impl Level {
    /// What is in use.
    pub fn used(self) -> u64 {
        self.capacity.saturating_sub(self.available)
    }
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesystemLevel {
    /// Which file system: two folders with the same number lie on the same one.
    pub id: u64,
    /// Bytes.
    pub bytes: Level,
    /// Inodes; 0 where the file system counts none.
    pub inodes: Level,
}

/// Bytes and inodes below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes that the files occupy.
    pub bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

impl std::ops::AddAssign for DiskUse {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// What a pod has written to the node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisk {
    /// Volumes that lie on the node's disk (emptyDir, ConfigMap and their like), by name.
    pub volumes: BTreeMap<String, DiskUse>,
    /// Logs by container.
    pub logs: BTreeMap<String, DiskUse>,
    /// Files beside them that its containers can write: the table of hosts, the last words.
    pub files: DiskUse,
    /// What running containers wrote to their own root, by the runtime's id; empty if it was not
    /// asked for.
    pub layers: BTreeMap<String, DiskUse>,
}

impl PodDisk {
    /// All of it.
    pub fn total(&self) -> DiskUse {
        let mut total = self.beside_layers();
        total += self.in_layers();
        total
    }

    /// What lies with the node's own files, whatever holds images and layers.
    pub fn beside_layers(&self) -> DiskUse {
        let mut total = self.files;
        for one in self.volumes.values().chain(self.logs.values()) {
            total += *one;
        }
        total
    }

    /// What lies with the images.
    pub fn in_layers(&self) -> DiskUse {
        let mut total = DiskUse::default();
        for one in self.layers.values() {
            total += *one;
        }
        total
    }
}

/// A pod whose use of the disk is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPaths {
    /// The pod.
    pub pod: PodUid,
    /// The folder of its logs.
    pub logs: PathBuf,
    /// Whether what its containers wrote to their own root is asked for too.
    pub layers: bool,
}

/// A process that had to go because the machine had no memory left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemOom {
    /// Its name, as the kernel knows it.
    pub process: String,
    /// Its id, as the kernel counts.
    pub pid: u32,
}

/// Reads what the node has left. Every method may be repeated.
pub trait NodeStats: Send + Sync {
    /// Memory that pods and the system can still take: capacity less the working set.
    fn memory(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>>;

    /// Process ids.
    fn pids(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>>;

    /// The file system of volumes, logs and emptyDir (`nodefs`).
    fn node_filesystem(&self) -> BoxFuture<'_, Result<FilesystemLevel, NodeStatsError>>;

    /// The file system that holds this path.
    fn filesystem<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<FilesystemLevel, NodeStatsError>>;

    /// Working sets of these pods, in bytes. A pod without a cgroup is left out.
    fn pod_memory<'a>(
        &'a self,
        pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>>;

    /// Working sets of the pod's containers, in bytes, by the runtime's id.
    fn container_memory<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<BTreeMap<String, u64>, NodeStatsError>>;

    /// Processes of these pods. A pod without a cgroup is left out.
    fn pod_pids<'a>(
        &'a self,
        pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>>;

    /// What a pod has written to the disk: at least so much, if it is too much to be counted.
    fn pod_disk<'a>(&'a self, pod: &'a PodPaths) -> BoxFuture<'a, Result<PodDisk, NodeStatsError>>;

    /// Grows each time the kernel says that memory gets scarce: that fewer than `available` bytes
    /// are left, or that tasks wait for memory. `None`: this kernel does not say so.
    fn memory_hints(&self, available: u64) -> Option<watch::Receiver<u64>>;

    /// The victims of the OOM killer from now on, where the whole machine had no memory left, and
    /// not only some cgroup. `None`: this machine does not tell.
    fn system_ooms(&self) -> Option<mpsc::Receiver<SystemOom>>;
}

/// Why something could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot read {what}: {cause}")]
pub struct NodeStatsError {
    /// The file or folder.
    pub what: String,
    /// What the kernel said.
    pub cause: String,
}
