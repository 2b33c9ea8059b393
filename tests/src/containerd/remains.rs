//! What killed shims leave behind: the processes of their containers, and the cgroups of those.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the hierarchies are mounted.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// How long the kernel may take to empty a cgroup whose processes were killed.
const EMPTY_LIMIT: Duration = Duration::from_secs(2);

/// All processes below these, in no order.
pub(super) fn descendants(roots: &[i32]) -> Vec<i32> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()) {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = roots.to_vec();
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        open.extend(below);
    }
    found
}

/// The cgroups, in every hierarchy, of the processes below these; only those that are theirs alone.
pub(super) fn cgroups(roots: &[i32]) -> BTreeSet<PathBuf> {
    let own = cgroups_of("self");
    let theirs = descendants(roots)
        .into_iter()
        .flat_map(|pid| cgroups_of(&pid.to_string()));
    theirs.filter(|path| !own.contains(path)).collect()
}

/// Removes the ones that are empty; what is not stays and is seen by who looks for leftovers.
pub(super) fn remove_cgroups(cgroups: &BTreeSet<PathBuf>) {
    let deadline = Instant::now() + EMPTY_LIMIT;
    for path in cgroups {
        while path.is_dir() && std::fs::remove_dir(path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Source: proc(5), field 4 of `stat`.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Source: cgroups(7), `/proc/<pid>/cgroup`.
fn cgroups_of(pid: &str) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        (!path.is_empty()).then(|| {
            (
                controllers.trim_start_matches("name=").to_owned(),
                path.to_owned(),
            )
        })
    });
    let folder = |(controllers, path): (String, String)| {
        Path::new(CGROUP_MOUNT).join(controllers).join(path)
    };
    lines.map(folder).collect()
}
