//! What single pods use.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use swiftlet_model::cgroups::container_of;
use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::node_stats::{NodeStatsError, PodDisk, PodPaths};
use swiftlet_sys::cgroup::Mode;

use crate::layers::Layers;
use crate::walk::{Budget, single, usage};
use crate::{Places, failed};

/// The classes' folders between the root and the pods; Guaranteed pods lie in the root itself.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

pub(crate) struct PodFolders<'a> {
    places: &'a Places,
    layers: &'a Layers,
}

impl<'a> PodFolders<'a> {
    pub(crate) fn new(places: &'a Places, layers: &'a Layers) -> Self {
        Self { places, layers }
    }

    pub(crate) fn memory(&self, pods: &[PodUid]) -> Result<BTreeMap<PodUid, u64>, NodeStatsError> {
        self.of_each(pods, "memory", |folder| self.working_set(folder))
    }

    fn working_set(&self, folder: &Path) -> io::Result<u64> {
        let (usage, inactive) = match self.places.hierarchies.mode {
            Mode::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            Mode::V2 => ("memory.current", "inactive_file"),
        };
        let usage = number(&folder.join(usage))?;
        let stat = fs::read_to_string(folder.join("memory.stat"))?;
        Ok(usage.saturating_sub(stat_field(&stat, inactive)))
    }

    /// The runtime names its cgroups after its containers.
    pub(crate) fn container_memory(
        &self,
        pod: &PodUid,
    ) -> Result<BTreeMap<String, u64>, NodeStatsError> {
        let hierarchy = self.hierarchy("memory")?;
        let root = hierarchy.join(self.places.cgroup_root.trim_matches('/'));
        let mut all = BTreeMap::new();
        for class in CLASSES {
            let folder = root.join(class).join(format!("pod{pod}"));
            for container in subfolders(&folder).unwrap_or_default() {
                let used = self.working_set(&container).ok();
                let id = container_of(&file_name(&container));
                all.extend(used.map(|used| (id.to_string(), used)));
            }
        }
        Ok(all)
    }

    pub(crate) fn pids(&self, pods: &[PodUid]) -> Result<BTreeMap<PodUid, u64>, NodeStatsError> {
        self.of_each(pods, "pids", |folder| number(&folder.join("pids.current")))
    }

    /// Reads each pod's folder; one that has gone meanwhile is left out.
    fn of_each(
        &self,
        pods: &[PodUid],
        controller: &str,
        read: impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<BTreeMap<PodUid, u64>, NodeStatsError> {
        let hierarchy = self.hierarchy(controller)?;
        let root = hierarchy.join(self.places.cgroup_root.trim_matches('/'));
        let mut all = BTreeMap::new();
        for pod in pods {
            let name = format!("pod{pod}");
            let value = CLASSES.iter().find_map(|class| {
                let folder = root.join(class).join(&name);
                read(&folder).ok()
            });
            all.extend(value.map(|value| (pod.clone(), value)));
        }
        Ok(all)
    }

    fn hierarchy(&self, controller: &str) -> Result<&PathBuf, NodeStatsError> {
        let hierarchies = &self.places.hierarchies;
        let serves = |folder: &&PathBuf| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            hierarchies.mode == Mode::V2 || name.split(',').any(|part| part == controller)
        };
        let found = hierarchies.folders.iter().find(serves);
        found.ok_or_else(|| failed(controller, &"no such cgroup controller"))
    }

    /// What a pod wrote. Each part is counted within a budget of its own: what is too much to be
    /// counted hides nothing but itself.
    pub(crate) fn disk(&self, pod: &PodPaths) -> Result<PodDisk, NodeStatsError> {
        self.disk_within(pod, Budget::of_part)
    }

    fn disk_within(
        &self,
        pod: &PodPaths,
        budget: impl Fn() -> Budget,
    ) -> Result<PodDisk, NodeStatsError> {
        let folder = self.places.root.join("pods").join(pod.pod.as_str());
        let mut disk = PodDisk::default();
        let mut is_partial = false;
        let mut usage = |folder: &Path| {
            let mut budget = budget();
            let used = usage(folder, &mut budget);
            is_partial |= budget.is_spent();
            used
        };
        let logs = subfolders(&pod.logs);
        for container in logs.map_err(|error| failed(pod.logs.display(), &error))? {
            disk.logs.insert(file_name(&container), usage(&container));
        }
        // The table of hosts and the last words: containers write there as they like.
        disk.files = single(&folder.join("etc-hosts"));
        let last_words = subfolders(&folder.join("containers"));
        for container in last_words.map_err(|error| failed(folder.display(), &error))? {
            disk.files += usage(&container);
        }
        let plugins = subfolders(&folder.join("volumes"));
        for plugin in plugins.map_err(|error| failed(folder.display(), &error))? {
            let volumes = subfolders(&plugin);
            for volume in volumes.map_err(|error| failed(plugin.display(), &error))? {
                // A volume with a file system of its own takes nothing of the node's disk.
                if is_same_device(&plugin, &volume) {
                    let used = usage(&volume);
                    disk.volumes.insert(file_name(&volume), used);
                }
            }
        }
        if pod.layers {
            for (id, upper) in self.layers(&pod.pod)? {
                disk.layers.insert(id.to_string(), usage(&upper));
            }
        }
        if is_partial {
            tracing::warn!(pod = %pod.pod, "it wrote too much: only a part is counted");
        }
        Ok(disk)
    }

    fn layers(&self, pod: &PodUid) -> Result<Vec<(ContainerId, PathBuf)>, NodeStatsError> {
        let root = self.hierarchy("memory")?;
        let root = root.join(self.places.cgroup_root.trim_matches('/'));
        let mut all = Vec::new();
        for class in CLASSES {
            let folder = root.join(class).join(format!("pod{pod}"));
            let found = self.layers.of_pod(&folder);
            all.extend(found.map_err(|error| failed("mounts", &error))?);
        }
        Ok(all)
    }
}

pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_same_device(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
    device(one) == device(other)
}

/// The folders in a folder; none if it is not there.
pub(crate) fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.path()).collect())
}

fn number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(io::Error::other)
}

fn stat_field(stat: &str, name: &str) -> u64 {
    let value = stat.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    });
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use swiftlet_sys::cgroup::Hierarchies;
    use swiftlet_sys::mount;

    use super::*;

    fn places(root: &Path) -> Places {
        Places {
            root: root.to_owned(),
            hierarchies: Hierarchies {
                mode: Mode::V2,
                folders: vec![],
            },
            cgroup_root: "none".into(),
        }
    }

    #[test]
    fn a_pod_is_charged_for_what_it_wrote_and_for_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let volumes = root.path().join("pods/u1/volumes/kubernetes.io~empty-dir");
        fs::create_dir_all(volumes.join("data/deep")).unwrap();
        let file = volumes.join("data/deep/file");
        fs::write(&file, vec![1; 200_000]).unwrap();
        fs::hard_link(&file, volumes.join("data/again")).unwrap();
        std::os::unix::fs::symlink("/", volumes.join("data/out")).unwrap();
        let pod = root.path().join("pods/u1");
        fs::write(pod.join("etc-hosts"), vec![1; 70_000]).unwrap();
        fs::create_dir_all(pod.join("containers/main")).unwrap();
        fs::write(pod.join("containers/main/0"), vec![1; 90_000]).unwrap();
        let logs = root.path().join("logs");
        fs::create_dir_all(logs.join("main")).unwrap();
        fs::write(logs.join("main/0.log"), vec![1; 50_000]).unwrap();
        let places = places(root.path());
        let disk = PodFolders::new(&places, &Layers::default())
            .disk(&PodPaths {
                pod: "u1".into(),
                logs,
                layers: false,
            })
            .unwrap();
        let data = disk.volumes["data"];
        assert!((200_000..300_000).contains(&data.bytes), "{data:?}");
        // The two folders, the file under one of its names, the link.
        assert_eq!(data.inodes, 4);
        assert!(disk.logs["main"].bytes >= 50_000);
        // A container writes to its table of hosts and its last words too.
        assert!(disk.files.bytes >= 160_000, "{disk:?}");
        assert_eq!(disk.total().inodes, 9);
        assert!(disk.total().bytes >= 410_000);
    }

    #[test]
    fn a_part_that_is_too_much_to_be_counted_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("logs");
        let volumes = root.path().join("pods/u1/volumes/kubernetes.io~empty-dir");
        for folder in [logs.join("main"), volumes.join("many")] {
            fs::create_dir_all(&folder).unwrap();
            for number in 0..100 {
                fs::write(folder.join(number.to_string()), "").unwrap();
            }
        }
        fs::create_dir_all(volumes.join("data")).unwrap();
        fs::write(volumes.join("data/file"), vec![1; 200_000]).unwrap();
        let places = places(root.path());
        let paths = PodPaths {
            pod: "u1".into(),
            logs,
            layers: false,
        };
        let few = || Budget::new(60, Duration::from_mins(1));
        let layers = Layers::default();
        let disk = PodFolders::new(&places, &layers).disk_within(&paths, few);
        let disk = disk.unwrap();
        assert_eq!(disk.logs["main"].inodes, 61);
        assert_eq!(disk.volumes["many"].inodes, 61);
        assert!(disk.volumes["data"].bytes >= 200_000, "{disk:?}");
    }

    #[test]
    fn what_is_mounted_takes_nothing_of_the_nodes_disk() {
        let root = tempfile::tempdir().unwrap();
        let volumes = root.path().join("pods/u1/volumes/kubernetes.io~empty-dir");
        fs::create_dir_all(volumes.join("disk/foreign")).unwrap();
        fs::create_dir_all(volumes.join("fast")).unwrap();
        fs::write(volumes.join("disk/file"), vec![1; 200_000]).unwrap();
        let mounts = [volumes.join("disk/foreign"), volumes.join("fast")];
        for place in &mounts {
            mount::tmpfs(place, None, 0o755).unwrap();
            fs::write(place.join("file"), vec![1; 500_000]).unwrap();
        }
        let places = places(root.path());
        let paths = PodPaths {
            pod: "u1".into(),
            logs: root.path().join("logs"),
            layers: false,
        };
        let disk = PodFolders::new(&places, &Layers::default()).disk(&paths);
        for place in &mounts {
            mount::unmount(place).unwrap();
        }
        let disk = disk.unwrap();
        // An emptyDir in memory is the pod's cgroup's, a foreign mount is nobody's here.
        assert_eq!(disk.volumes.keys().collect::<Vec<_>>(), ["disk"]);
        let data = disk.volumes["disk"];
        assert!((200_000..300_000).contains(&data.bytes), "{data:?}");
        let gone = PodPaths {
            pod: "u2".into(),
            ..paths
        };
        let gone = PodFolders::new(&places, &Layers::default())
            .disk(&gone)
            .unwrap();
        assert!(gone.volumes.is_empty() && gone.logs.is_empty());
    }

    #[test]
    fn files_that_were_not_read_lately_are_no_working_set() {
        let stat = "cache 10\ninactive_file 3\ntotal_inactive_file 7\n";
        assert_eq!(stat_field(stat, "inactive_file"), 3);
        assert_eq!(stat_field(stat, "total_inactive_file"), 7);
        assert_eq!(stat_field(stat, "absent"), 0);
    }
}
