//! Which cgroups are watched, and whose they are.
//!
//! A pod's cgroup is put into the index first and into the kernel's map second, so that whatever
//! the kernel then reports finds its pod. Containers that are there already are adopted by reading
//! the directory; those that come later are adopted by the kernel. Where both do it, the kernel's
//! record stays: it may know more already.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aya::maps::MapError;
use dashmap::{DashMap, DashSet};
use swiftlet_ebpf_abi::{Tracked, TrackedKind, names};
use swiftlet_model::cgroups::container_of;
use swiftlet_model::ids::{ContainerId, PodUid};
use tokio::sync::Notify;

use crate::hierarchy::Hierarchy;
use crate::loader::TrackedMap;
use crate::merge::Merge;
use crate::{PlegError, adopt, memory};

/// `BPF_NOEXIST` of `include/uapi/linux/bpf.h`.
const IF_ABSENT: u64 = 1;

/// Whose cgroup it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) pod: PodUid,
    /// The cgroup's name, if it is a container's or a sandbox's and not the pod's own.
    name: Option<Arc<str>>,
}

impl Target {
    /// The container or sandbox; `None` for the pod's own cgroup.
    pub(crate) fn container(&self) -> Option<ContainerId> {
        self.name.as_deref().map(container_of)
    }
}

/// The tracked pods.
pub(crate) struct TrackedPods {
    kernel: Option<Kernel>,
    /// Kernel's cgroup id → whose it is.
    cgroups: DashMap<u64, Target>,
    /// Pod → its cgroup's id.
    pods: DashMap<PodUid, u64>,
    /// Pod → its cgroup as the kubelet names it.
    paths: DashMap<PodUid, String>,
    /// Pods whose tracking failed.
    blind: DashSet<PodUid>,
    relist_now: Arc<Notify>,
}

struct Kernel {
    hierarchy: Hierarchy,
    /// The kernel's map takes care of itself, but aya's handle wants to be exclusive; held for one
    /// system call at a time.
    map: Mutex<TrackedMap>,
    merge: Arc<Merge>,
}

impl TrackedPods {
    pub(crate) fn new(
        hierarchy: Hierarchy,
        map: TrackedMap,
        merge: Arc<Merge>,
        relist_now: Arc<Notify>,
    ) -> Self {
        let kernel = Kernel {
            hierarchy,
            map: Mutex::new(map),
            merge,
        };
        Self {
            kernel: Some(kernel),
            ..Self::without_kernel(relist_now)
        }
    }

    /// Tracks nothing: the relist sees every pod of the runtime.
    pub(crate) fn without_kernel(relist_now: Arc<Notify>) -> Self {
        Self {
            kernel: None,
            cgroups: DashMap::new(),
            pods: DashMap::new(),
            paths: DashMap::new(),
            blind: DashSet::new(),
            relist_now,
        }
    }

    /// Watches the pod's cgroup and what is in it.
    pub(crate) fn track(&self, pod: &PodUid, cgroup: &str) -> Result<(), PlegError> {
        let Some(kernel) = &self.kernel else {
            return Ok(());
        };
        let result = self.track_in(kernel, pod, cgroup);
        if result.is_ok() {
            self.blind.remove(pod);
        } else {
            self.blind.insert(pod.clone());
        }
        result
    }

    fn track_in(&self, kernel: &Kernel, pod: &PodUid, cgroup: &str) -> Result<(), PlegError> {
        let directory = kernel.hierarchy.directory(cgroup);
        let id = inode(&directory)?;
        self.paths.insert(pod.clone(), cgroup.to_owned());
        match self.pods.insert(pod.clone(), id) {
            Some(before) if before == id && kernel.contains(id) => return Ok(()),
            // The cgroup was made anew: the old one is gone, with all that was in it.
            Some(before) if before != id => self.forget_below(kernel, before),
            _ => (),
        }
        self.cgroups.insert(
            id,
            Target {
                pod: pod.clone(),
                name: None,
            },
        );
        kernel.insert(id, Tracked::new(TrackedKind::Pod, 0))?;
        for child in adopt::children(&directory) {
            self.adopt(kernel, pod, id, &child)?;
        }
        Ok(())
    }

    /// Takes over a container that is there already.
    fn adopt(
        &self,
        kernel: &Kernel,
        pod: &PodUid,
        parent: u64,
        directory: &Path,
    ) -> Result<(), PlegError> {
        // One that vanished between the listing and now needs no tracking.
        let Ok(id) = inode(directory) else {
            return Ok(());
        };
        let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        self.add_container(id, pod, name);
        let init = adopt::running_init(directory);
        let record = match init {
            Some(process) => Tracked::running(parent, process),
            None => Tracked::new(TrackedKind::Container, parent),
        };
        if !kernel.insert(id, record)? {
            return Ok(());
        }
        for inner in adopt::inner_cgroups(directory) {
            if let Ok(inner) = inode(&inner) {
                kernel.insert(inner, Tracked::new(TrackedKind::Inner, id))?;
            }
        }
        match init {
            Some(process) if adopt::is_alive(process) => {
                kernel.merge.started(&container_of(name), Instant::now());
            }
            // It ended before the kernel knew what to look for, or has not begun.
            _ => self.relist_now.notify_one(),
        }
        Ok(())
    }

    /// Stops watching the pod.
    pub(crate) fn untrack(&self, pod: &PodUid) {
        self.blind.remove(pod);
        let Some(kernel) = &self.kernel else { return };
        self.pods.remove(pod);
        self.paths.remove(pod);
        let mut gone = Vec::new();
        self.cgroups.retain(|id, target| {
            let keep = target.pod != *pod;
            if !keep {
                gone.push(*id);
            }
            keep
        });
        for id in gone {
            kernel.remove(id);
        }
    }

    fn forget_below(&self, kernel: &Kernel, pod_cgroup: u64) {
        if let Some((_, target)) = self.cgroups.remove(&pod_cgroup) {
            self.cgroups.retain(|_, other| other.pod != target.pod);
        }
        kernel.remove(pod_cgroup);
    }

    /// Whose cgroup it is.
    pub(crate) fn target(&self, cgroup: u64) -> Option<Target> {
        self.cgroups.get(&cgroup).map(|target| target.clone())
    }

    /// A container's cgroup that the kernel adopted.
    pub(crate) fn add_container(&self, cgroup: u64, pod: &PodUid, name: &str) {
        let target = Target {
            pod: pod.clone(),
            name: Some(name.into()),
        };
        self.cgroups.insert(cgroup, target);
    }

    /// A container's cgroup that is gone.
    pub(crate) fn remove_container(&self, cgroup: u64) {
        self.cgroups.remove(&cgroup);
    }

    /// Whether the OOM killer struck in the container, by the count of its cgroup.
    pub(crate) fn oom_killed(&self, target: &Target) -> bool {
        let (Some(kernel), Some(name)) = (&self.kernel, &target.name) else {
            return false;
        };
        let hierarchy = &kernel.hierarchy;
        let v1 = hierarchy.controller.is_some();
        let path = self.paths.get(&target.pod);
        path.is_some_and(|pod| memory::oom_killed(&hierarchy.mount, v1, &pod, name))
    }

    /// How many pods only the relist sees.
    pub(crate) fn blind_pods(&self) -> u64 {
        self.blind.len() as u64
    }

    /// Pods that only the relist sees.
    pub(crate) fn unseen(&self) -> BTreeSet<PodUid> {
        self.blind.iter().map(|pod| pod.clone()).collect()
    }

    /// The containers whose cgroups are watched.
    pub(crate) fn containers(&self) -> Vec<ContainerId> {
        self.cgroups
            .iter()
            .filter_map(|target| target.container())
            .collect()
    }
}

impl Kernel {
    /// Inserts a record unless there is one; answers whether it was inserted.
    fn insert(&self, id: u64, record: Tracked) -> Result<bool, PlegError> {
        match self.map().insert(id, record.to_words(), IF_ABSENT) {
            Ok(()) => Ok(true),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Ok(false)
            }
            Err(source) => Err(PlegError::Map {
                name: names::TRACKED,
                source: Box::new(source),
            }),
        }
    }

    fn contains(&self, id: u64) -> bool {
        self.map().get(&id, 0).is_ok()
    }

    /// A missing record is success.
    fn remove(&self, id: u64) {
        if let Err(error) = self.map().remove(&id) {
            tracing::trace!(id, %error, "not in the map of tracked cgroups");
        }
    }

    fn map(&self) -> MutexGuard<'_, TrackedMap> {
        // The handle holds no state that a panic could leave half changed.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel's id of a cgroup: the inode number of its directory, on 64-bit machines.
fn inode(directory: &Path) -> Result<u64, PlegError> {
    let metadata = fs::metadata(directory).map_err(|source| PlegError::Read {
        path: directory.to_owned(),
        source,
    })?;
    Ok(metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_kernel_tracking_is_no_failure() {
        let tracked = TrackedPods::without_kernel(Arc::new(Notify::new()));
        let pod = PodUid::from("u");
        tracked
            .track(&pod, "/kubepods/podu")
            .expect("nothing to do");
        assert_eq!(tracked.blind_pods(), 0);
        tracked.untrack(&pod);
    }
}
