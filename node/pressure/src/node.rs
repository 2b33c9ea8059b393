//! What the whole node has left.

use std::path::Path;

use nix::sys::stat::stat;
use nix::sys::statvfs::statvfs;
use swiftlet_model::node_stats::{FilesystemLevel, Level, NodeStatsError};

use crate::failed;

const MEMINFO: &str = "/proc/meminfo";
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
const THREADS_MAX: &str = "/proc/sys/kernel/threads-max";
const LOADAVG: &str = "/proc/loadavg";

/// `meminfo` counts in these.
const KIB: u64 = 1024;

pub(crate) fn memory() -> Result<Level, NodeStatsError> {
    memory_of(&read(MEMINFO)?).ok_or_else(|| failed(MEMINFO, &"a line is missing"))
}

/// The working set is what is in use without the files that have not been read lately, as cgroups
/// count it for pods (`memory.available` in Kubernetes' words: capacity less the working set).
fn memory_of(meminfo: &str) -> Option<Level> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * KIB)
    };
    let capacity = field("MemTotal:")?;
    let available = field("MemFree:")? + field("Inactive(file):")?;
    Some(Level {
        capacity,
        available: available.min(capacity),
    })
}

/// The kernel refuses a process above either limit.
pub(crate) fn pids() -> Result<Level, NodeStatsError> {
    let number = |path: &str| {
        let text = read(path)?;
        text.trim()
            .parse::<u64>()
            .map_err(|error| failed(path, &error))
    };
    let capacity = number(PID_MAX)?.min(number(THREADS_MAX)?);
    let running = tasks(&read(LOADAVG)?).ok_or_else(|| failed(LOADAVG, &"not five fields"))?;
    Ok(Level {
        capacity,
        available: capacity.saturating_sub(running),
    })
}

/// The fourth field: tasks that run, then all.
fn tasks(loadavg: &str) -> Option<u64> {
    let field = loadavg.split_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

/// A folder that is not there yet will come to lie where its nearest parent lies.
pub(crate) fn filesystem(path: &Path) -> Result<FilesystemLevel, NodeStatsError> {
    let found = path
        .ancestors()
        .find_map(|folder| Some((stat(folder).ok()?, statvfs(folder).ok()?)));
    let (place, disk) = found.ok_or_else(|| failed(path.display(), &"no such folder"))?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
    Ok(FilesystemLevel {
        id: place.st_dev,
        bytes: Level {
            capacity: bytes(disk.blocks()),
            available: bytes(disk.blocks_available()),
        },
        inodes: Level {
            capacity: disk.files(),
            available: disk.files_free(),
        },
    })
}

fn read(path: &str) -> Result<String, NodeStatsError> {
    std::fs::read_to_string(path).map_err(|error| failed(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_lately_can_still_be_taken() {
        let text = "MemTotal: 100 kB\nMemFree: 20 kB\nInactive: 30 kB\nInactive(file): 10 kB\n";
        let level = memory_of(text).unwrap();
        assert_eq!((level.capacity, level.available), (100 << 10, 30 << 10));
        assert_eq!(level.used(), 70 << 10);
        assert_eq!(memory_of("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn all_tasks_of_the_machine_count() {
        assert_eq!(tasks("0.20 0.18 0.12 1/380 11206\n"), Some(380));
        assert_eq!(tasks("nonsense"), None);
    }

    #[test]
    fn this_machine_has_something_left_of_everything() {
        assert!(memory().unwrap().available > 0);
        assert!(pids().unwrap().available > 0);
        let disk = filesystem(Path::new("/does/not/exist/yet")).unwrap();
        assert!(disk.bytes.capacity >= disk.bytes.available && disk.bytes.capacity > 0);
        assert_eq!(disk.id, filesystem(Path::new("/")).unwrap().id);
    }
}
