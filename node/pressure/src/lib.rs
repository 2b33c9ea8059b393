//! The NodeStats door: what the node has left of memory, disk and process ids, and who uses it.
//!
//! ```text
//! node.rs    /proc/meminfo, pids, statfs: parsing is pure
//! pods.rs    cgroup files of pods, files below their folders
//! layers.rs  what containers wrote to their own root
//! walk.rs    files below a folder, counted within limits
//! kernel_log.rs  the OOM killer's word that the machine had no memory left
//! hints.rs   the kernel's word that memory gets scarce: eventfd on v1, PSI on v2
//! ```
//!
//! Nothing is asked for in advance; each call reads what it answers. The table of mounts alone is
//! kept for a moment: it is the same for all pods.
#![forbid(unsafe_code)]

mod hints;
mod kernel_log;
mod layers;
mod node;
mod pods;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swiftlet_model::BoxFuture;
use swiftlet_model::ids::PodUid;
use swiftlet_model::node_stats::{
    FilesystemLevel, Level, NodeStats, NodeStatsError, PodDisk, PodPaths, SystemOom,
};
use swiftlet_sys::cgroup::Hierarchies;
use tokio::sync::{mpsc, watch};

use crate::layers::Layers;
use crate::pods::PodFolders;

/// Where this node's pods lie.
#[derive(Clone, Debug)]
pub struct Places {
    /// Holds `pods/<uid>/volumes`.
    pub root: PathBuf,
    /// How cgroups are mounted.
    pub hierarchies: Hierarchies,
    /// Name of the cgroup of all pods.
    pub cgroup_root: String,
}

/// Reads the machine. A clone reads the same.
#[derive(Clone, Debug)]
pub struct NodePressure {
    places: Arc<Places>,
    layers: Arc<Layers>,
}

impl NodePressure {
    /// For pods that lie there.
    pub fn new(places: Places) -> Self {
        Self {
            places: Arc::new(places),
            layers: Arc::default(),
        }
    }

    /// Runs a read on a thread that may block: a disk that is full may be slow as well.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Places, &Layers) -> Result<T, NodeStatsError> + Send + 'static,
    ) -> Result<T, NodeStatsError> {
        let (places, layers) = (Arc::clone(&self.places), Arc::clone(&self.layers));
        let read = tokio::task::spawn_blocking(move || read(&places, &layers)).await;
        read.unwrap_or_else(|error| Err(failed("blocking thread", &error)))
    }
}

impl NodeStats for NodePressure {
    fn memory(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>> {
        Box::pin(self.blocking(|_, _| node::memory()))
    }

    fn pids(&self) -> BoxFuture<'_, Result<Level, NodeStatsError>> {
        Box::pin(self.blocking(|_, _| node::pids()))
    }

    fn node_filesystem(&self) -> BoxFuture<'_, Result<FilesystemLevel, NodeStatsError>> {
        Box::pin(self.blocking(|places, _| node::filesystem(&places.root)))
    }

    fn filesystem<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<FilesystemLevel, NodeStatsError>> {
        let path = path.to_path_buf();
        Box::pin(self.blocking(move |_, _| node::filesystem(&path)))
    }

    fn pod_memory<'a>(
        &'a self,
        pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>> {
        let pods = pods.to_vec();
        Box::pin(self.blocking(move |places, layers| PodFolders::new(places, layers).memory(&pods)))
    }

    fn container_memory<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<BTreeMap<String, u64>, NodeStatsError>> {
        let pod = pod.clone();
        Box::pin(
            self.blocking(move |places, layers| {
                PodFolders::new(places, layers).container_memory(&pod)
            }),
        )
    }

    fn pod_pids<'a>(
        &'a self,
        pods: &'a [PodUid],
    ) -> BoxFuture<'a, Result<BTreeMap<PodUid, u64>, NodeStatsError>> {
        let pods = pods.to_vec();
        Box::pin(self.blocking(move |places, layers| PodFolders::new(places, layers).pids(&pods)))
    }

    fn pod_disk<'a>(&'a self, pod: &'a PodPaths) -> BoxFuture<'a, Result<PodDisk, NodeStatsError>> {
        let pod = pod.clone();
        Box::pin(self.blocking(move |places, layers| PodFolders::new(places, layers).disk(&pod)))
    }

    fn memory_hints(&self, available: u64) -> Option<watch::Receiver<u64>> {
        hints::start(&self.places.hierarchies, available)
    }

    fn system_ooms(&self) -> Option<mpsc::Receiver<SystemOom>> {
        kernel_log::system_ooms()
    }
}

fn failed(what: impl ToString, error: &impl ToString) -> NodeStatsError {
    NodeStatsError {
        what: what.to_string(),
        cause: error.to_string(),
    }
}
