//! What containers write to their own root: the upper folder of the overlay that the runtime has
//! mounted for them.
//!
//! Only the mounts that this program sees itself are believed, by the place where the runtime puts
//! them (containerd: `/run/containerd/io.containerd.runtime.v2.task/k8s.io/<id>/rootfs`): what a
//! container's own table says, the container can have mounted. The runtime is not asked: one that
//! tells of its layers counts all of them, of all containers, again and again. The mount of a
//! container that has ended is gone, so it is left out, as in Kubernetes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use swiftlet_model::cgroups::container_of;
use swiftlet_model::ids::ContainerId;

use crate::pods::{file_name, subfolders};

/// The option of an overlay that names the folder where all changes lie.
const UPPER: &str = "upperdir=";
/// How the kernel writes an overlay's kind. Source: `Documentation/filesystems/overlayfs.rst`.
const OVERLAY: &str = "overlay";
/// The last folder of the place where the runtime mounts a container's root.
const ROOT: &str = "rootfs";
/// The mounts that this program sees.
const TABLE: &str = "/proc/self/mountinfo";
/// How old the table may be. A node with 1,000 pods has some megabytes of it, and one look at the
/// pods' files asks for each pod.
const TABLE_AGE_MAX: Duration = Duration::from_secs(2);

/// Upper folders by container.
type Uppers = HashMap<ContainerId, PathBuf>;

/// The mounts of running containers.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// Read at most once in [`TABLE_AGE_MAX`]. Held while it is read: others then need not.
    read: Mutex<Option<(Instant, Arc<Uppers>)>>,
}

impl Layers {
    /// Upper folders of the containers that run in this pod's cgroup.
    pub(crate) fn of_pod(&self, cgroup: &Path) -> io::Result<Vec<(ContainerId, PathBuf)>> {
        let containers = subfolders(cgroup).unwrap_or_default();
        if containers.is_empty() {
            return Ok(Vec::new());
        }
        let uppers = self.uppers()?;
        let ids = containers.iter().map(|one| container_of(&file_name(one)));
        let known = ids.filter_map(|id| {
            let upper = uppers.get(&id)?.clone();
            Some((id, upper))
        });
        Ok(known.collect())
    }

    fn uppers(&self) -> io::Result<Arc<Uppers>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((at, uppers)) if at.elapsed() < TABLE_AGE_MAX => Ok(uppers.clone()),
            _ => {
                let uppers = Arc::new(uppers_of(&fs::read_to_string(TABLE)?));
                *read = Some((Instant::now(), uppers.clone()));
                Ok(uppers)
            }
        }
    }
}

fn uppers_of(table: &str) -> Uppers {
    table.lines().filter_map(upper_of).collect()
}

/// The container whose root a line shows, and the folder where its changes lie.
fn upper_of(line: &str) -> Option<(ContainerId, PathBuf)> {
    let (place, rest) = line.split_once(" - ")?;
    let place = Path::new(place.split(' ').nth(4)?);
    if place.file_name()? != ROOT {
        return None;
    }
    let id = place.parent()?.file_name()?.to_str()?;
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
    let is_plain = path.is_absolute() && !upper.contains('\\');
    is_plain.then(|| (ContainerId::from(id), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "\
500 400 0:60 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/rootfs rw,relatime - \
overlay overlay rw,lowerdir=/s/1/fs:/s/2/fs,upperdir=/s/7/fs,workdir=/s/7/work,uuid=on\n";

    fn of(table: &str) -> Vec<(String, String)> {
        let found = uppers_of(table).into_iter();
        let words = found.map(|(id, path)| (id.to_string(), path.display().to_string()));
        words.collect()
    }

    #[test]
    fn the_upper_folder_is_that_of_the_runtimes_mount_that_bears_the_containers_id() {
        let expected = [("c1".to_owned(), "/s/7/fs".to_owned())];
        assert_eq!(of(LINE), expected);
        let others =
            "400 1 8:1 / / rw - ext4 /dev/sda rw\n501 500 0:61 / /proc rw - proc proc rw\n";
        assert_eq!(of(&format!("{others}{LINE}")), expected);
        // What a container sees as its own root says nothing.
        let own = LINE.replace(
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/rootfs",
            "/",
        );
        assert!(of(&own).is_empty());
        assert!(of(&LINE.replace("overlay overlay", "ext4 /dev/sda")).is_empty());
        assert!(of(&LINE.replace("=/s/7/fs", "=s/7/fs")).is_empty());
        assert!(of("").is_empty());
    }

    #[test]
    fn a_pod_has_the_layers_of_the_containers_in_its_cgroup_and_no_others() {
        let pod = tempfile::tempdir().unwrap();
        fs::create_dir_all(pod.path().join("c1")).unwrap();
        fs::create_dir_all(pod.path().join("cri-containerd-c3.scope")).unwrap();
        fs::create_dir_all(pod.path().join("c9")).unwrap();
        let table = ["c1", "c2", "c3"].map(|id| LINE.replace("c1", id).replace("/7/", id));
        let layers = Layers::default();
        let read = (Instant::now(), Arc::new(uppers_of(&table.concat())));
        *layers.read.lock().unwrap() = Some(read);
        let mut found = layers.of_pod(pod.path()).unwrap();
        found.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        let ids: Vec<_> = found.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["c1", "c3"]);
    }

    #[test]
    fn a_look_at_many_pods_reads_the_table_once() {
        let layers = Layers::default();
        let first = layers.uppers().unwrap();
        assert!(Arc::ptr_eq(&first, &layers.uppers().unwrap()));
        let long_ago = Instant::now().checked_sub(TABLE_AGE_MAX).unwrap();
        *layers.read.lock().unwrap() = Some((long_ago, first.clone()));
        assert!(!Arc::ptr_eq(&first, &layers.uppers().unwrap()));
    }
}
