//! Which cgroup hierarchy is watched: the unified one on v2, a controller's on v1 and hybrid
//! machines.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use crate::PlegError;

/// The v1 controllers by preference. Runtimes put every container into each of them.
const CONTROLLERS: [&str; 3] = ["pids", "memory", "cpu"];

/// The hierarchy that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Where its root is mounted.
    pub(crate) mount: PathBuf,
    /// The kernel's number of it; 0 is the unified one.
    pub(crate) id: u32,
    /// The v1 controller through which a task's cgroup is found; `None` on v2.
    pub(crate) controller: Option<&'static str>,
}

impl Hierarchy {
    /// Finds the hierarchy below `root` (`/sys/fs/cgroup`).
    pub(crate) fn detect(root: &Path) -> Result<Self, PlegError> {
        if statfs(root).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC) {
            return Ok(Self {
                mount: root.to_owned(),
                id: 0,
                controller: None,
            });
        }
        let path = Path::new("/proc/self/cgroup");
        let table = fs::read_to_string(path).map_err(|source| PlegError::Read {
            path: path.to_owned(),
            source,
        })?;
        CONTROLLERS
            .into_iter()
            .find_map(|controller| {
                let mount = root.join(controller);
                let id = hierarchy_of(&table, controller)?;
                mount.join("cgroup.procs").exists().then_some(Self {
                    mount,
                    id,
                    controller: Some(controller),
                })
            })
            .ok_or_else(|| PlegError::NoHierarchy {
                root: root.to_owned(),
            })
    }

    /// The directory of a cgroup that the kubelet names `/kubepods/…`.
    pub(crate) fn directory(&self, cgroup: &str) -> PathBuf {
        self.mount.join(cgroup.trim_start_matches('/'))
    }
}

/// The number of a controller's hierarchy in `/proc/self/cgroup` (`8:pids:/`).
fn hierarchy_of(table: &str, controller: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let (id, rest) = line.split_once(':')?;
        let (controllers, _) = rest.split_once(':')?;
        let here = controllers.split(',').any(|name| name == controller);
        here.then(|| id.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_found_alone_and_in_company() {
        let table = "12:cpu,cpuacct:/\n8:pids:/user\n1:name=systemd:/\n0::/\n";
        assert_eq!(hierarchy_of(table, "pids"), Some(8));
        assert_eq!(hierarchy_of(table, "cpu"), Some(12));
        assert_eq!(hierarchy_of(table, "memory"), None);
    }

    #[test]
    fn a_cgroup_of_the_kubelet_lies_below_the_mount() {
        let hierarchy = Hierarchy {
            mount: "/sys/fs/cgroup/pids".into(),
            id: 8,
            controller: Some("pids"),
        };
        let directory = hierarchy.directory("/kubepods/besteffort/pod1");
        assert_eq!(
            directory,
            Path::new("/sys/fs/cgroup/pids/kubepods/besteffort/pod1")
        );
    }
}
