//! What a pod takes on the node's disk.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{EmptyDirUsage, VolumeError, VolumeUsage};
use swiftlet_sys::{beneath, mount};

use crate::failed;
use crate::folders::Folders;
use crate::make::EMPTY_DIR;

/// Files of one pod that are looked at: more cost more than the answer is worth.
const ENTRIES_MAX: usize = 1_000_000;
/// How long one pod may be looked at.
const TIME_MAX: Duration = Duration::from_secs(30);
/// What `st_blocks` counts. Source: stat(2).
const BLOCK_BYTES: u64 = 512;

/// Measures the emptyDir volumes and the logs.
pub(crate) fn of_pod(folders: &Folders, pod: &PodUid) -> Result<VolumeUsage, VolumeError> {
    let mut walk = Walk::new();
    let mut usage = VolumeUsage::default();
    let empty_dirs = folders.pod(pod).join("volumes").join(EMPTY_DIR);
    let measured = empty_dirs_of(&empty_dirs, &mut walk);
    usage.empty_dirs = measured.map_err(|error| failed("", &error))?;
    for logs in folders.logs_of(pod).map_err(|error| failed("", &error))? {
        usage.logs_bytes += walk.bytes(&logs);
    }
    usage.is_partial = walk.is_over();
    Ok(usage)
}

fn empty_dirs_of(folder: &Path, walk: &mut Walk) -> io::Result<BTreeMap<String, EmptyDirUsage>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut all = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let in_memory = beneath::is_mount_point(&path)?;
        let bytes = if in_memory {
            mount::used_bytes(&path)?
        } else {
            walk.bytes(&path)
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        all.insert(name.into_owned(), EmptyDirUsage { bytes, in_memory });
    }
    Ok(all)
}

/// A walk with its limits. What vanishes under it takes nothing.
struct Walk {
    left: usize,
    until: Instant,
    /// Files with several names count once.
    seen: HashSet<(u64, u64)>,
}

impl Walk {
    fn new() -> Self {
        Self {
            left: ENTRIES_MAX,
            until: Instant::now() + TIME_MAX,
            seen: HashSet::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() > self.until
    }

    /// Of the folder and all on the same device below it.
    fn bytes(&mut self, root: &Path) -> u64 {
        let Ok(top) = fs::symlink_metadata(root) else {
            return 0;
        };
        let mut bytes = top.blocks() * BLOCK_BYTES;
        let mut folders = vec![PathBuf::from(root)];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for entry in entries {
                if self.is_over() {
                    return bytes;
                }
                self.left -= 1;
                let Ok(found) = entry.metadata() else {
                    continue;
                };
                let is_new = found.nlink() < 2 || self.seen.insert((found.dev(), found.ino()));
                if found.is_dir() && found.dev() == top.dev() {
                    folders.push(entry.path());
                }
                if found.dev() == top.dev() && (is_new || found.is_dir()) {
                    bytes += found.blocks() * BLOCK_BYTES;
                }
            }
        }
        bytes
    }
}
