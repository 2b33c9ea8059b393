//! How often the OOM killer struck in a cgroup, as the cgroup itself counts it.
//!
//! The count goes with the cgroup, which the runtime removes some milliseconds after the exit: it
//! is read when the exit is told. It knows of kills that the kernel programs did not see: from
//! before the agent ran, and on kernels that do not report victims.

use std::fs;
use std::path::Path;

/// The key in `memory.events` (v2) and, since Linux 4.13, in `memory.oom_control` (v1).
const KEY: &str = "oom_kill ";

/// Whether the OOM killer struck in the cgroup that is called `name` below `pod`; false if the
/// cgroup is gone or nobody counts.
pub(crate) fn oom_killed(watched: &Path, v1: bool, pod: &str, name: &str) -> bool {
    let relative = Path::new(pod.trim_start_matches('/')).join(name);
    let file = if v1 {
        let Some(mounts) = watched.parent() else {
            return false;
        };
        let memory = mounts.join("memory").join(relative);
        memory.join("memory.oom_control")
    } else {
        watched.join(relative).join("memory.events")
    };
    fs::read_to_string(file).is_ok_and(|text| kills(&text) > 0)
}

fn kills(text: &str) -> u64 {
    let count = text.lines().find_map(|line| line.strip_prefix(KEY));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_in_the_files_of_both_versions() {
        assert_eq!(
            kills("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"),
            1
        );
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(
            kills("oom_kill_disable 0\nunder_oom 0\n"),
            0,
            "an old kernel"
        );
    }

    #[test]
    fn a_cgroup_that_is_gone_tells_nothing() {
        let mount = Path::new("/sys/fs/cgroup/pids");
        assert!(!oom_killed(mount, true, "/none", "none"));
        assert!(!oom_killed(mount, false, "/none", "none"));
    }
}
