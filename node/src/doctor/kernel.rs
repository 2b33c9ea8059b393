//! Kernel, capabilities and io_uring.

use swiftlet_sys::file_thread::{FileMode, FileThread};

use super::Check;

/// Oldest kernel that is served: BPF ring buffers (5.8) and `CAP_BPF` (5.8), Debian 11's is 5.10.
const KERNEL_MIN: (u32, u32) = (5, 10);

/// Lets a process lower `oom_score_adj` (`include/uapi/linux/capability.h`).
pub(super) const CAP_SYS_RESOURCE: u32 = 24;

/// Capabilities by number, what they are for, and whether pods can run only with them.
const CAPABILITIES: [(&str, u32, &str, bool); 6] = [
    ("CAP_NET_ADMIN", 12, "pod networks", true),
    ("CAP_SYS_ADMIN", 21, "mounts and namespaces", true),
    (
        "CAP_SYS_RESOURCE",
        CAP_SYS_RESOURCE,
        "lower oom_score_adj values",
        false,
    ),
    (
        "CAP_SYS_PTRACE",
        19,
        "namespaces of other users' processes",
        false,
    ),
    ("CAP_PERFMON", 38, "lifecycle events from the kernel", false),
    ("CAP_BPF", 39, "lifecycle events from the kernel", false),
];

pub(super) fn examine() -> Vec<Check> {
    vec![release(), user(), capabilities(&status_file()), io_uring()]
}

fn release() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(version) if version >= KERNEL_MIN => Check::ok("kernel", release),
        _ => Check::missing(
            "kernel",
            release,
            format!("needs {}.{} or newer", KERNEL_MIN.0, KERNEL_MIN.1),
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn user() -> Check {
    if nix::unistd::geteuid().is_root() {
        return Check::ok("user", "root");
    }
    Check::missing(
        "user",
        format!("uid {}", nix::unistd::geteuid()),
        "run as root",
    )
}

fn status_file() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Whether this process has a capability, by its number.
pub(super) fn has_capability(number: u32) -> bool {
    effective(&status_file()) & (1 << number) != 0
}

/// The effective set: a bit per capability, none if the file does not tell (proc(5)).
fn effective(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn capabilities(status: &str) -> Check {
    let mask = effective(status);
    let lacking: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(_, bit, ..)| mask & (1 << bit) == 0)
        .collect();
    if lacking.is_empty() {
        return Check::ok("capabilities", "all that are used");
    }
    let found = lacking
        .iter()
        .map(|(name, _, purpose, _)| format!("no {name} ({purpose})"))
        .collect::<Vec<_>>()
        .join(", ");
    if lacking.iter().any(|(.., needed)| *needed) {
        return Check::missing("capabilities", found, "run with these capabilities");
    }
    let remedy = if lacking.iter().any(|(name, ..)| *name == "CAP_SYS_RESOURCE") {
        "set restrict_oom_score_adj = true in containerd's CRI section"
    } else {
        "run with these capabilities"
    };
    Check::warning("capabilities", found, remedy)
}

fn io_uring() -> Check {
    match FileThread::start() {
        Ok(thread) if thread.mode() == FileMode::IoUring => Check::ok("io_uring", "allowed"),
        Ok(_) => Check::warning(
            "io_uring",
            "refused by the kernel, plain calls are used",
            "sysctl kernel.io_uring_disabled=0",
        ),
        Err(error) => Check::missing("io_uring", error.to_string(), "allow more threads"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.9.0"), Some((5, 9)));
        assert!(version("5.9.0") < Some(KERNEL_MIN));
        assert_eq!(version("x"), None);
    }

    #[test]
    fn a_lacking_capability_is_named_with_its_remedy() {
        let all = capabilities("CapEff:\t000001ffffffffff\n");
        assert_eq!(all.verdict, Verdict::Ok);
        let no_resource = capabilities("CapEff:\t000001fffeffffff\n");
        assert_eq!(no_resource.verdict, Verdict::Warning);
        assert!(
            no_resource.remedy.contains("restrict_oom_score_adj"),
            "{no_resource}"
        );
        assert_eq!(capabilities("CapEff:\t0\n").verdict, Verdict::Missing);
        assert_eq!(capabilities("").verdict, Verdict::Missing);
    }
}
