//! The Cgroups door: pod cgroups written directly, on cgroup v1 and v2.
//!
//! ```text
//! <hierarchy>/kubepods                    all pods
//!             ├── pod<uid>                Guaranteed
//!             ├── burstable/pod<uid>      Burstable
//!             └── besteffort/pod<uid>     BestEffort
//!
//! limits.rs  values in the words of the two versions: pure
//! tree.rs    folders made, killed, removed
//! ```
//!
//! On v1 the same tree stands in each hierarchy. Nothing is remembered: the folders are the state.
//! All file effects of one call run one after another on one blocking thread.
#![forbid(unsafe_code)]

mod limits;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use swiftlet_model::BoxFuture;
use swiftlet_model::cgroups::{CgroupError, Cgroups, QosClass};
use swiftlet_model::ids::PodUid;
use swiftlet_model::runtime::LinuxResources;
pub use swiftlet_sys::cgroup::{Hierarchies, Mode};

use crate::tree::Tree;

/// Name of the cgroup of all pods, as kubelet has it.
pub const ROOT: &str = "kubepods";

/// How this machine mounts its cgroups, and where each hierarchy is; for `doctor`.
pub fn hierarchies() -> Result<Hierarchies, CgroupError> {
    detect(Path::new(swiftlet_sys::cgroup::MOUNT))
}

/// Pod cgroups under one root. A clone shares it.
#[derive(Clone, Debug)]
pub struct PodCgroups {
    tree: Arc<Tree>,
}

impl PodCgroups {
    /// Under `/<root>` of the machine's hierarchies; `root` is [`ROOT`] outside of tests.
    pub fn new(root: &str) -> Result<Self, CgroupError> {
        Ok(Self::with_hierarchies(hierarchies()?, root))
    }

    /// Under `/<root>` of these hierarchies.
    pub fn with_hierarchies(hierarchies: Hierarchies, root: &str) -> Self {
        Self {
            tree: Arc::new(Tree::new(hierarchies, root)),
        }
    }

    /// v1 (or hybrid) or v2.
    pub fn mode(&self) -> Mode {
        self.tree.mode()
    }

    /// The pod's folder in each hierarchy where it has one: its inode number is the cgroup's id.
    pub fn folders(&self, pod: &PodUid) -> Vec<PathBuf> {
        self.tree.pod_folders(pod)
    }

    /// Kills and removes everything below the root, and the root.
    pub async fn remove_all(&self) -> Result<(), CgroupError> {
        self.blocking(Tree::remove_all).await
    }

    /// Runs the whole sequence on a thread that may block: `mkdir` and `rmdir` of a cgroup wait for
    /// locks of the kernel.
    async fn blocking<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&Tree) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, CgroupError> {
        let tree = Arc::clone(&self.tree);
        tokio::task::spawn_blocking(move || effect(&tree))
            .await
            .unwrap_or_else(|error| {
                Err(CgroupError {
                    path: self.tree.root().to_owned(),
                    operation: "blocking thread",
                    cause: error.to_string(),
                })
            })
    }
}

impl Cgroups for PodCgroups {
    fn ensure_pod<'a>(
        &'a self,
        pod: &'a PodUid,
        qos: QosClass,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<String, CgroupError>> {
        let (pod, resources) = (pod.clone(), resources.clone());
        Box::pin(self.blocking(move |tree| tree.ensure_pod(&pod, qos, &resources)))
    }

    fn limit_all_pods<'a>(
        &'a self,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), CgroupError>> {
        let resources = resources.clone();
        Box::pin(self.blocking(move |tree| tree.limit_all_pods(&resources)))
    }

    fn class_shares(
        &self,
        qos: QosClass,
        cpu_shares: i64,
    ) -> BoxFuture<'_, Result<(), CgroupError>> {
        Box::pin(self.blocking(move |tree| tree.class_shares(qos, cpu_shares)))
    }

    fn remove_pod<'a>(&'a self, pod: &'a PodUid) -> BoxFuture<'a, Result<(), CgroupError>> {
        let pod = pod.clone();
        Box::pin(self.blocking(move |tree| tree.remove_pod(&pod)))
    }

    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodUid>, CgroupError>> {
        Box::pin(self.blocking(Tree::pods))
    }
}

fn detect(mount: &Path) -> Result<Hierarchies, CgroupError> {
    swiftlet_sys::cgroup::hierarchies(mount).map_err(|error| CgroupError {
        path: mount.display().to_string(),
        operation: "detect the mode",
        cause: error.to_string(),
    })
}
