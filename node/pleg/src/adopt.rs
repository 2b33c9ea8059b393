//! Containers that ran before the agent did: finds the first process of each from its cgroup.
//!
//! The same rule as in the kernel program for exec, asked of `/proc`: number 1 of the innermost pid
//! namespace, or else the oldest process with another mount namespace than its parent's.

use std::fs;
use std::path::{Path, PathBuf};

/// Deepest nesting of cgroups inside a container's that is searched.
const INNER_DEPTH_MAX: usize = 8;

/// Programs that stand in a container's cgroup before its own program is exec'd.
const RUNTIMES: [&str; 3] = ["runc", "crun", "youki"];

/// A process as `/proc` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    id: u32,
    parent: u32,
    /// Its number in each pid namespace, the host's first.
    numbers: Vec<u32>,
}

/// The container's first process, if its own program runs.
pub(crate) fn running_init(cgroup: &Path) -> Option<u32> {
    let mut processes = Vec::new();
    collect(cgroup, 0, &mut processes);
    let processes: Vec<Process> = processes.into_iter().filter_map(read_process).collect();
    let init = processes
        .iter()
        .filter(|process| process.numbers.len() > 1 && process.numbers.last() == Some(&1))
        // A namespace inside the container has an init of its own; the outermost is the
        // container's.
        .min_by_key(|process| process.numbers.len())
        .or_else(|| {
            processes
                .iter()
                .filter(|process| has_own_mounts(process))
                .min_by_key(|process| start_time(process.id))
        })?;
    (!is_runtime(init.id)).then_some(init.id)
}

/// Whether the process is there and not a zombie.
pub(crate) fn is_alive(process: u32) -> bool {
    stat_fields(process).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// The cgroups below `cgroup`, at any depth, with their inode numbers.
pub(crate) fn inner_cgroups(cgroup: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![(cgroup.to_owned(), 0)];
    while let Some((folder, depth)) = rest.pop() {
        if depth < INNER_DEPTH_MAX {
            for child in children(&folder) {
                rest.push((child.clone(), depth + 1));
                found.push(child);
            }
        }
    }
    found
}

/// The directories in `folder`; none if it is gone.
pub(crate) fn children(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn collect(cgroup: &Path, depth: usize, processes: &mut Vec<u32>) {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    processes.extend(list.lines().filter_map(|line| line.parse::<u32>().ok()));
    if depth < INNER_DEPTH_MAX {
        for child in children(cgroup) {
            collect(&child, depth + 1, processes);
        }
    }
}

fn read_process(id: u32) -> Option<Process> {
    parse_status(id, &fs::read_to_string(format!("/proc/{id}/status")).ok()?)
}

fn parse_status(id: u32, status: &str) -> Option<Process> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let parent = field("PPid:")?.trim().parse().ok()?;
    let numbers = field("NSpid:")?
        .split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect();
    Some(Process {
        id,
        parent,
        numbers,
    })
}

fn has_own_mounts(process: &Process) -> bool {
    let namespace = |id: u32| fs::read_link(format!("/proc/{id}/ns/mnt")).ok();
    let own = namespace(process.id);
    own.is_some() && own != namespace(process.parent)
}

/// When the process was made, in clock ticks since boot.
fn start_time(process: u32) -> u64 {
    // Field 22 of proc_pid_stat(5); the state is field 3 and the first one here.
    stat_fields(process)
        .and_then(|fields| fields.get(19)?.parse().ok())
        .unwrap_or(u64::MAX)
}

/// Fields of `/proc/<id>/stat` behind the name, which may itself hold spaces and brackets.
fn stat_fields(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<String> = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    (!fields.is_empty()).then_some(fields)
}

/// Whether the process still is the runtime's, waiting to become the container.
fn is_runtime(process: u32) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{process}/exe")) else {
        return false;
    };
    let program = program.to_string_lossy().into_owned();
    // The sealed copy that runc runs itself from is an anonymous file.
    program.starts_with("/memfd:runc_cloned")
        || RUNTIMES
            .iter()
            .any(|runtime| program.rsplit('/').next() == Some(runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_all_namespaces_are_read() {
        let status = "Name:\tsh\nPPid:\t7\nNSpid:\t4711\t12\t1\nThreads:\t1\n";
        let expected = Process {
            id: 4711,
            parent: 7,
            numbers: vec![4711, 12, 1],
        };
        assert_eq!(parse_status(4711, status), Some(expected));
        assert_eq!(parse_status(1, "Name:\tsh\n"), None);
    }

    #[test]
    fn this_process_is_alive_and_no_runtime() {
        assert!(is_alive(std::process::id()));
        assert!(start_time(std::process::id()) < u64::MAX);
        assert!(!is_runtime(std::process::id()));
        assert!(!is_alive(u32::MAX >> 1));
    }

    #[test]
    fn a_missing_cgroup_has_no_init() {
        assert_eq!(
            running_init(Path::new("/sys/fs/cgroup/does-not-exist")),
            None
        );
    }
}
