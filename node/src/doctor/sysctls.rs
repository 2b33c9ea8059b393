//! Kernel limits that a dense node runs into.

use super::Check;
use crate::options::NodeOptions;

/// A limit, how much of it is needed, and what happens below.
struct Limit {
    name: &'static str,
    key: &'static str,
    needed: u64,
    otherwise: &'static str,
}

/// What `max_pods` pods need.
fn limits(max_pods: u32) -> [Limit; 6] {
    let pods = u64::from(max_pods);
    [
        Limit {
            name: "ip_forward",
            key: "net.ipv4.ip_forward",
            needed: 1,
            otherwise: "pods do not reach what lies outside of the node",
        },
        // Each pod has an entry on the bridge; the table is the kernel's, not the namespace's.
        Limit {
            name: "neighbour table",
            key: "net.ipv4.neigh.default.gc_thresh3",
            needed: (pods * 2).max(1024),
            otherwise: "neighbour table overflow",
        },
        // One session keyring per container, two containers per pod at the least.
        Limit {
            name: "keys",
            key: "kernel.keys.root_maxkeys",
            needed: pods * 4,
            otherwise: "disk quota exceeded when containers are created",
        },
        Limit {
            name: "inotify",
            key: "fs.inotify.max_user_instances",
            needed: 128,
            otherwise: "too many open files in programs that watch files",
        },
        Limit {
            name: "pid_max",
            key: "kernel.pid_max",
            needed: pods * 128,
            otherwise: "cannot fork",
        },
        Limit {
            name: "file-max",
            key: "fs.file-max",
            needed: pods * 256,
            otherwise: "too many open files in system",
        },
    ]
}

/// What pods with an address of IPv6 need besides.
const IPV6_FORWARD: Limit = Limit {
    name: "ipv6 forwarding",
    key: "net.ipv6.conf.all.forwarding",
    needed: 1,
    otherwise: "pods do not reach by IPv6 what lies outside of the node",
};

pub(super) fn examine(options: &NodeOptions) -> Vec<Check> {
    let mut all = Vec::from(limits(options.max_pods));
    let mut ranges = options.pod_cidr.values().iter();
    if ranges.any(|range| range.addr().is_ipv6()) {
        all.push(IPV6_FORWARD);
    }
    all.iter()
        .map(|limit| judge(limit, read(limit.key)))
        .collect()
}

fn read(key: &str) -> Option<u64> {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    // Some limits exceed 64 bits when they are "no limit".
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().parse().unwrap_or(u64::MAX))
}

fn judge(limit: &Limit, value: Option<u64>) -> Check {
    let Limit {
        name,
        key,
        needed,
        otherwise,
    } = limit;
    match value {
        Some(value) if value >= *needed => Check::ok(name, format!("{key} = {value}")),
        Some(value) => Check::warning(
            name,
            format!("{key} = {value}: {otherwise}"),
            format!("sysctl -w {key}={needed}"),
        ),
        None => Check::warning(name, format!("{key} cannot be read"), "mount /proc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_limit_that_is_too_low_comes_with_the_command_that_raises_it() {
        let limits = limits(1000);
        let table = limits
            .iter()
            .find(|limit| limit.name == "neighbour table")
            .expect("listed");
        let low = judge(table, Some(1024));
        assert_eq!(low.verdict, Verdict::Warning);
        assert_eq!(
            low.remedy,
            "sysctl -w net.ipv4.neigh.default.gc_thresh3=2000"
        );
        assert_eq!(judge(table, Some(4096)).verdict, Verdict::Ok);
        assert_eq!(judge(table, None).verdict, Verdict::Warning);
    }
}
