//! What a pod takes on the node's disk.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{EmptyDirUsage, VolumeError, VolumeUsage};
use swiftlet_sys::walk::{self, Next};
use swiftlet_sys::{beneath, mount};

use crate::failed;
use crate::folders::Folders;
use crate::make::EMPTY_DIR;

/// Files of one pod that are looked at: more cost more than the answer is worth.
const ENTRIES_MAX: usize = 1_000_000;
/// How long one pod may be looked at.
const TIME_MAX: Duration = Duration::from_secs(30);

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
    usage.is_partial = walk.is_over() || walk.is_cut;
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
    /// A folder could not be read.
    is_cut: bool,
}

impl Walk {
    fn new() -> Self {
        Self {
            left: ENTRIES_MAX,
            until: Instant::now() + TIME_MAX,
            seen: HashSet::new(),
            is_cut: false,
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() > self.until
    }

    /// Of the folder and all on the same device below it.
    fn bytes(&mut self, root: &Path) -> u64 {
        let Ok(top) = beneath::find(root) else {
            return 0;
        };
        let (top, mut bytes) = (top.facts, top.facts.bytes);
        let walked = walk::walk(root, |step| {
            let found = step.facts;
            if step.is_end() {
                return Ok(Next::Pass);
            }
            if self.is_over() {
                return Ok(Next::Stop);
            }
            self.left -= 1;
            if found.identity.0 != top.identity.0 {
                return Ok(Next::Pass);
            }
            if found.is_folder || found.names < 2 || self.seen.insert(found.identity) {
                bytes += found.bytes;
            }
            Ok(Next::Enter)
        });
        // What cannot be read is as much as there was until then.
        self.is_cut |= walked.is_err();
        bytes
    }
}
