//! What containers write to their own root: the upper folder of the overlay that the runtime has
//! mounted there, as the kernel shows it to the container's first process.
//!
//! The runtime is not asked: one that tells of its layers counts all of them, of all containers,
//! again and again. A container that has ended has no process and is left out, as in Kubernetes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pods::{file_name, subfolders};

/// The option of an overlay that names the folder where all changes lie.
const UPPER: &str = "upperdir=";
/// How the kernel writes an overlay's kind. Source: `Documentation/filesystems/overlayfs.rst`.
const OVERLAY: &str = "overlay";
/// Folders of a container's cgroup that are looked into: one that holds a whole system has put its
/// processes below.
const CGROUPS_MAX: usize = 16;

/// Upper folders of the containers that run in this pod's cgroup, by the runtime's id.
pub(crate) fn upper_folders(pod: &Path, proc: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for container in subfolders(pod).unwrap_or_default() {
        let upper = first_process(&container).and_then(|pid| upper_folder(proc, pid));
        found.extend(upper.map(|upper| (id_of(&container), upper)));
    }
    found
}

/// The runtime names a container's cgroup after its id; one that has systemd make it writes
/// `<prefix>-<id>.scope`.
fn id_of(container: &Path) -> String {
    let name = file_name(container);
    let bare = name.strip_suffix(".scope").unwrap_or(&name);
    let id = bare.rsplit_once('-').map_or(bare, |(_, id)| id);
    if bare.len() == name.len() {
        name
    } else {
        id.to_owned()
    }
}

fn first_process(cgroup: &Path) -> Option<u32> {
    let below = subfolders(cgroup).unwrap_or_default();
    let mut all = [cgroup.to_owned()].into_iter().chain(below);
    all.by_ref().take(CGROUPS_MAX).find_map(|folder| {
        let text = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
        let mut pids = text.lines().filter_map(|line| line.trim().parse().ok());
        // 0: a process that this program's namespace does not know.
        pids.find(|pid| *pid > 0)
    })
}

fn upper_folder(proc: &Path, pid: u32) -> Option<PathBuf> {
    let table = fs::read_to_string(proc.join(pid.to_string()).join("mountinfo")).ok()?;
    upper_of_root(&table)
}

/// The upper folder of the mount at `/`; the last one there hides the others.
fn upper_of_root(table: &str) -> Option<PathBuf> {
    let root = table
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/"))?;
    let (_, rest) = root.split_once(" - ")?;
    let mut words = rest.split(' ');
    if words.next() != Some(OVERLAY) {
        return None;
    }
    let options = words.nth(1)?;
    let upper = options
        .split(',')
        .find_map(|word| word.strip_prefix(UPPER))?;
    // A path with letters that the kernel had to write as numbers is none of a runtime's.
    let path = Path::new(upper);
    (path.is_absolute() && !upper.contains('\\')).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
500 400 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/s/1/fs:/s/2/fs,\
upperdir=/s/7/fs,workdir=/s/7/work,uuid=on\n\
501 500 0:61 / /proc rw - proc proc rw\n";

    #[test]
    fn the_upper_folder_is_that_of_the_mount_at_the_root() {
        assert_eq!(upper_of_root(TABLE), Some("/s/7/fs".into()));
        let hidden = format!("400 1 8:1 / / rw - ext4 /dev/sda rw\n{TABLE}");
        assert_eq!(upper_of_root(&hidden), Some("/s/7/fs".into()));
        let other = "500 400 8:1 /x / rw - ext4 /dev/sda rw,upperdir=/no\n";
        assert_eq!(upper_of_root(other), None);
        assert_eq!(upper_of_root(&TABLE.replace("/s/7/fs", "s/7/fs")), None);
        assert_eq!(upper_of_root(""), None);
    }

    #[test]
    fn each_container_that_runs_has_its_own_and_one_that_has_ended_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, proc) = (dir.path().join("pod"), dir.path().join("proc"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(pod.join("c1/cgroup.procs"), "0\n71\n72\n");
        write(pod.join("c2/cgroup.procs"), "");
        // One that holds a system of its own.
        write(pod.join("cri-c3.scope/cgroup.procs"), "");
        write(pod.join("cri-c3.scope/init/cgroup.procs"), "73\n");
        write(proc.join("71/mountinfo"), TABLE);
        write(proc.join("73/mountinfo"), &TABLE.replace("/s/7", "/s/8"));
        let found = upper_folders(&pod, &proc);
        let expected = [("c1", "/s/7/fs"), ("c3", "/s/8/fs")];
        assert!(
            found
                .iter()
                .map(|(id, path)| (id.as_str(), path.to_str().unwrap()))
                .eq(expected)
        );
    }
}
