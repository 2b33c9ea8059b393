//! Limits as file names and values of the two versions. Pure.

use swiftlet_model::runtime::LinuxResources;
use swiftlet_sys::cgroup::Mode;

/// Smallest `cpu.shares` that the kernel takes.
pub(crate) const SHARES_MIN: i64 = 2;

/// Largest `cpu.shares` that the kernel takes.
const SHARES_MAX: i64 = 262_144;

/// `cpu.shares` of one CPU.
pub(crate) const SHARES_PER_CPU: i64 = 1024;

/// `cpu.weight` goes from 1 to this.
const WEIGHT_MAX: i64 = 10_000;

/// Microseconds of `cpu.cfs_period_us` that Kubernetes takes where nothing is said.
const PERIOD_US_DEFAULT: i64 = 100_000;

/// One file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The controller's name, to find its hierarchy on v1.
    pub(crate) controller: &'static str,
    /// The file's name.
    pub(crate) file: String,
    /// What is written.
    pub(crate) value: String,
}

impl Setting {
    /// Whether it takes away what may not be there in the first place.
    pub(crate) fn is_nothing(&self) -> bool {
        self.controller == "hugetlb" && self.value == "0"
    }
}

/// What to write for a pod. `is_new`: what is not limited needs no write, as it is the kernel's
/// default.
pub(crate) fn pod(mode: Mode, limits: &LinuxResources, is_new: bool) -> Vec<Setting> {
    let mut settings = vec![cpu_shares(mode, limits.cpu_shares)];
    if limits.cpu_quota_us > 0 || !is_new {
        settings.extend(cpu_quota(mode, limits));
    }
    if limits.memory_limit_bytes > 0 || !is_new {
        settings.push(memory(mode, limits.memory_limit_bytes));
    }
    if limits.pids_limit > 0 || !is_new {
        settings.push(pids(limits.pids_limit));
    }
    let huge = limits.hugepage_limits.iter();
    settings.extend(huge.map(|(size, bytes)| hugepages(mode, size, *bytes)));
    settings
}

/// What to write for the root of all pods. A limit that is not given is lifted: it may be that of
/// an earlier start.
pub(crate) fn all_pods(mode: Mode, limits: &LinuxResources) -> Vec<Setting> {
    vec![
        cpu_shares(mode, limits.cpu_shares),
        memory(mode, limits.memory_limit_bytes),
        pids(limits.pids_limit),
    ]
}

fn pids(most: i64) -> Setting {
    if most > 0 {
        setting("pids", "pids.max", most)
    } else {
        setting("pids", "pids.max", "max")
    }
}

fn hugepages(mode: Mode, size: &str, bytes: u64) -> Setting {
    let file = match mode {
        Mode::V1 => format!("hugetlb.{size}.limit_in_bytes"),
        Mode::V2 => format!("hugetlb.{size}.max"),
    };
    setting("hugetlb", file, bytes)
}

/// The weight of a cgroup among its siblings, given in v1's unit.
pub(crate) fn cpu_shares(mode: Mode, shares: i64) -> Setting {
    let shares = shares.clamp(SHARES_MIN, SHARES_MAX);
    match mode {
        Mode::V1 => setting("cpu", "cpu.shares", shares),
        Mode::V2 => setting("cpu", "cpu.weight", weight(shares)),
    }
}

/// The line from (2, 1) to (262144, 10000) that runc and kubelet draw (KEP-2254), rounded down.
fn weight(shares: i64) -> i64 {
    1 + (shares - SHARES_MIN) * (WEIGHT_MAX - 1) / (SHARES_MAX - SHARES_MIN)
}

fn cpu_quota(mode: Mode, limits: &LinuxResources) -> Vec<Setting> {
    let quota = limits.cpu_quota_us;
    let period = if limits.cpu_period_us > 0 {
        limits.cpu_period_us
    } else {
        PERIOD_US_DEFAULT
    };
    match (mode, quota > 0) {
        (Mode::V1, true) => vec![
            setting("cpu", "cpu.cfs_period_us", period),
            setting("cpu", "cpu.cfs_quota_us", quota),
        ],
        (Mode::V1, false) => vec![setting("cpu", "cpu.cfs_quota_us", -1)],
        (Mode::V2, true) => vec![setting("cpu", "cpu.max", format!("{quota} {period}"))],
        (Mode::V2, false) => vec![setting("cpu", "cpu.max", "max")],
    }
}

fn memory(mode: Mode, bytes: i64) -> Setting {
    match (mode, bytes > 0) {
        (Mode::V1, true) => setting("memory", "memory.limit_in_bytes", bytes),
        (Mode::V1, false) => setting("memory", "memory.limit_in_bytes", -1),
        (Mode::V2, true) => setting("memory", "memory.max", bytes),
        (Mode::V2, false) => setting("memory", "memory.max", "max"),
    }
}

fn setting(controller: &'static str, file: impl Into<String>, value: impl ToString) -> Setting {
    Setting {
        controller,
        file: file.into(),
        value: value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mode: Mode, limits: &LinuxResources, is_new: bool) -> Vec<String> {
        let settings = pod(mode, limits, is_new);
        settings
            .iter()
            .map(|it| format!("{}={}", it.file, it.value))
            .collect()
    }

    #[test]
    fn weights_end_where_shares_end() {
        assert_eq!((weight(2), weight(1024), weight(262_144)), (1, 39, 10_000));
        assert_eq!(cpu_shares(Mode::V1, 0).value, "2");
    }

    #[test]
    fn limits_are_written_in_the_words_of_each_version() {
        let limits = LinuxResources {
            cpu_shares: 1024,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
            memory_limit_bytes: 1 << 20,
            ..LinuxResources::default()
        };
        assert_eq!(
            written(Mode::V1, &limits, true),
            [
                "cpu.shares=1024",
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=50000",
                "memory.limit_in_bytes=1048576"
            ]
        );
        assert_eq!(
            written(Mode::V2, &limits, true),
            [
                "cpu.weight=39",
                "cpu.max=50000 100000",
                "memory.max=1048576"
            ]
        );
    }

    #[test]
    fn processes_and_huge_pages_have_their_limits() {
        let limits = LinuxResources {
            cpu_shares: 2,
            pids_limit: 64,
            hugepage_limits: [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)].into(),
            ..LinuxResources::default()
        };
        assert_eq!(
            written(Mode::V1, &limits, true)[1..],
            [
                "pids.max=64",
                "hugetlb.1GB.limit_in_bytes=0",
                "hugetlb.2MB.limit_in_bytes=4194304"
            ]
        );
        assert_eq!(
            written(Mode::V2, &limits, true)[2..],
            ["hugetlb.1GB.max=0", "hugetlb.2MB.max=4194304"]
        );
    }

    #[test]
    fn a_limit_that_was_taken_away_is_lifted() {
        let none = LinuxResources {
            cpu_shares: 2,
            ..LinuxResources::default()
        };
        assert_eq!(written(Mode::V1, &none, true), ["cpu.shares=2"]);
        assert_eq!(
            written(Mode::V1, &none, false),
            [
                "cpu.shares=2",
                "cpu.cfs_quota_us=-1",
                "memory.limit_in_bytes=-1",
                "pids.max=max"
            ]
        );
        assert_eq!(
            written(Mode::V2, &none, false),
            [
                "cpu.weight=1",
                "cpu.max=max",
                "memory.max=max",
                "pids.max=max"
            ]
        );
    }
}
