//! Pod cgroups as the kubelet sees them.

use futures::future::BoxFuture;
pub use swiftlet_proto::qos::QosClass;

use crate::ids::{ContainerId, PodUid};
use crate::runtime::LinuxResources;

/// Makes and removes pod cgroups, on cgroup v1 and v2. Every method may be repeated.
pub trait Cgroups: Send + Sync {
    /// Makes the pod's cgroup with these limits; answers its path as CRI wants it
    /// (`/kubepods/burstable/pod<uid>`).
    fn ensure_pod<'a>(
        &'a self,
        pod: &'a PodUid,
        qos: QosClass,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<String, CgroupError>>;

    /// Limits what all pods together may take, and their weight against the rest of the machine.
    fn limit_all_pods<'a>(
        &'a self,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), CgroupError>>;

    /// Sets the weight that all pods of a class have together. The class of Guaranteed pods has no
    /// cgroup of its own.
    fn class_shares(
        &self,
        qos: QosClass,
        cpu_shares: i64,
    ) -> BoxFuture<'_, Result<(), CgroupError>>;

    /// Kills what is left in it and removes it. Missing is success.
    fn remove_pod<'a>(&'a self, pod: &'a PodUid) -> BoxFuture<'a, Result<(), CgroupError>>;

    /// The pods that have a cgroup on this node.
    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodUid>, CgroupError>>;
}

/// What can go wrong with a cgroup.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cgroup {path}: {operation}: {cause}")]
pub struct CgroupError {
    /// The folder or file.
    pub path: String,
    /// What was tried.
    pub operation: &'static str,
    /// What the kernel said.
    pub cause: String,
}

/// The container that a cgroup's folder is named after: the name itself with the cgroupfs driver,
/// `cri-containerd-<id>.scope` with systemd's.
pub fn container_of(folder: &str) -> ContainerId {
    let id = folder.strip_suffix(".scope").map_or(folder, |unit| {
        unit.rsplit_once('-').map_or(unit, |(_, id)| id)
    });
    ContainerId::from(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_by_either_cgroup_driver() {
        let of = |folder: &str| container_of(folder).to_string();
        assert_eq!(of("0123abcd"), "0123abcd");
        assert_eq!(of("cri-containerd-0123abcd.scope"), "0123abcd");
        assert_eq!(of("with-dash"), "with-dash");
    }
}
