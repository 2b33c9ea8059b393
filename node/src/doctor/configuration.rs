//! The configuration file, and what it needs of the machine.

use std::path::Path;

use super::Check;
use crate::configuration::{ConfigurationError, Settings};
use crate::options::NodeOptions;

const CONFIG: &str = "configuration";
const STATIC_PODS: &str = "static pods";
const SWAP: &str = "swap";

pub(super) fn examine(
    options: &NodeOptions,
    settings: Result<&Settings, &ConfigurationError>,
) -> Vec<Check> {
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            let remedy = "correct the file that --config names";
            return vec![Check::missing(CONFIG, error.to_string(), remedy)];
        }
    };
    let mut checks = Vec::new();
    if let Some(path) = &options.config {
        checks.push(Check::ok(CONFIG, path.display().to_string()));
    }
    if let Some(path) = &settings.static_pods.path {
        checks.push(static_pods(path));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    checks.push(swap(&swaps, settings.fail_swap_on));
    if settings.fail_cgroup_v1 && !is_cgroup_v2() {
        let remedy = "boot with cgroup v2, or set failCgroupV1 to false";
        checks.push(Check::missing(
            "cgroup version",
            "v1, and failCgroupV1 is true",
            remedy,
        ));
    }
    checks
}

/// What would keep the agent from doing what the configuration says.
pub(crate) fn obstacle(settings: &Settings) -> Option<&'static str> {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    if settings.fail_swap_on && has_swap(&swaps) {
        // In the words of kubelet (pkg/kubelet/cm/container_manager_linux.go).
        return Some(
            "running with swap on is not supported, please disable swap or set failSwapOn to false",
        );
    }
    if settings.fail_cgroup_v1 && !is_cgroup_v2() {
        return Some("cgroup v1 is in use, and failCgroupV1 is true");
    }
    None
}

fn static_pods(path: &Path) -> Check {
    let found = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(_) => Check::ok(STATIC_PODS, found),
        Err(error) => Check::warning(
            STATIC_PODS,
            format!("{found}: {error}"),
            "make the folder; it is looked for again and again",
        ),
    }
}

fn swap(swaps: &str, must_be_off: bool) -> Check {
    match (has_swap(swaps), must_be_off) {
        (false, _) => Check::ok(SWAP, "off"),
        (true, true) => Check::missing(
            SWAP,
            "on, and failSwapOn is true",
            "swapoff -a, or set failSwapOn to false",
        ),
        (true, false) => Check::warning(
            SWAP,
            "on: limits of memory do not hold as they should",
            "swapoff -a",
        ),
    }
}

/// The first line of `/proc/swaps` is a heading.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().skip(1).any(|line| !line.trim().is_empty())
}

fn is_cgroup_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn swap_is_missing_its_end_only_where_it_must_be_off() {
        let on = "Filename Type Size Used Priority\n/swapfile file 2097148 0 -2\n";
        let off = "Filename Type Size Used Priority\n";
        assert_eq!(swap(on, true).verdict, Verdict::Missing);
        assert_eq!(swap(on, false).verdict, Verdict::Warning);
        assert_eq!(swap(off, true).verdict, Verdict::Ok);
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_warning() {
        assert_eq!(
            static_pods(Path::new("/does/not/exist")).verdict,
            Verdict::Warning
        );
        assert_eq!(static_pods(Path::new("/")).verdict, Verdict::Ok);
    }
}
