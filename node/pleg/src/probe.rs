//! What the kernel's events need, item by item, for `doctor`.

use std::fs;
use std::path::Path;

use swiftlet_ebpf_abi::RING_BYTES;
use swiftlet_model::runtime::RuntimeEvents;

use crate::btf::{Btf, VMLINUX};
use crate::hierarchy::Hierarchy;
use crate::pidfd::process;
use crate::{PlegError, loader, stream};

/// Capability numbers of `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// One prerequisite: its name, and what was found or why it is not there.
#[derive(Debug)]
pub struct Probe {
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub result: Result<String, PlegError>,
    /// What would make it work.
    pub remedy: &'static str,
}

/// What the kernel programs need.
const KERNEL: &str = "needs a kernel with BTF and BPF, CAP_BPF and CAP_PERFMON";

/// The runtime whose streams share one channel: a stream that is opened to try it would take an
/// event away from the agent that runs.
const CONTAINERD: &str = "containerd";

/// The first containerd with a stream of events.
const STREAM_SINCE: (u32, u32) = (1, 7);

/// Whether the runtime has a stream of events.
pub async fn probe_stream(runtime: &dyn RuntimeEvents) -> Probe {
    Probe {
        name: "event stream",
        result: has_stream(runtime).await,
        remedy: "needs a runtime with GetContainerEvents (containerd 1.7)",
    }
}

async fn has_stream(runtime: &dyn RuntimeEvents) -> Result<String, PlegError> {
    let version = stream::answered(runtime).await?;
    if version.name != CONTAINERD {
        let opened = stream::open(runtime).await;
        return opened.map(|_opened| "served by the runtime".to_owned());
    }
    let version = version.version;
    match release(&version) {
        Some(release) if release >= STREAM_SINCE => {
            Ok(format!("containerd {version} has one; it was not opened"))
        }
        _ => Err(PlegError::NoStreamYet { version }),
    }
}

/// Major and minor number: `v1.7.24`, `1.6.20~ds1`, `2.1.0-rc.1`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Whether the kernel has pidfds, and the runtime tells process ids that mean the same here.
pub async fn probe_pidfd(runtime: &dyn RuntimeEvents) -> Probe {
    let result = match process::probe() {
        Ok(()) => process::same_namespace(runtime).await,
        Err(error) => Err(error),
    };
    Probe {
        name: "pidfd",
        result: result.map(|()| "allowed".to_owned()),
        remedy: "needs Linux 5.3 and the runtime's pid namespace",
    }
}

/// Tries everything that [`crate::Pleg::start`] needs; attaches nothing and leaves nothing behind.
pub fn probe(cgroup_root: &Path) -> Vec<Probe> {
    let hierarchy = Hierarchy::detect(cgroup_root);
    let programs = Hierarchy::detect(cgroup_root).and_then(|found| loader::try_load(&found));
    let hierarchy = hierarchy.map(|found| match found.controller {
        Some(controller) => format!("v1, controller {controller}, hierarchy {}", found.id),
        None => "v2".to_owned(),
    });
    let loaded = "4 tracepoint programs are accepted";
    vec![
        Probe {
            name: "kernel BTF",
            result: Btf::of_kernel().map(|_| VMLINUX.to_owned()),
            remedy: KERNEL,
        },
        Probe {
            name: "BPF capabilities",
            result: capabilities().map(|()| held().to_owned()),
            remedy: KERNEL,
        },
        Probe {
            name: "cgroup hierarchy",
            result: hierarchy,
            remedy: KERNEL,
        },
        Probe {
            name: "BPF programs and ring buffer",
            result: programs.map(|()| format!("{loaded}, ring of {} MiB", RING_BYTES >> 20)),
            remedy: KERNEL,
        },
    ]
}

/// Whether the process may load tracing programs.
pub(crate) fn capabilities() -> Result<(), PlegError> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(|source| PlegError::Read {
        path: path.to_owned(),
        source,
    })?;
    let has = |capability: u32| effective(&status) >> capability & 1 == 1;
    match (has(CAP_SYS_ADMIN), has(CAP_BPF), has(CAP_PERFMON)) {
        (true, _, _) | (_, true, true) => Ok(()),
        (_, true, false) => Err(PlegError::Capability {
            missing: "CAP_PERFMON",
        }),
        (_, false, true) => Err(PlegError::Capability { missing: "CAP_BPF" }),
        _ => Err(PlegError::Capability {
            missing: "CAP_BPF with CAP_PERFMON",
        }),
    }
}

fn held() -> &'static str {
    "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN"
}

fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read_from_the_status_file() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000000c000000000\n"), 3 << 38);
        assert_eq!(effective(""), 0);
    }

    #[tokio::test]
    async fn the_stream_of_a_runtime_that_may_be_in_use_is_not_opened() {
        let runtime = crate::runtime::FakeRuntime::default();
        let found = probe_stream(&runtime).await.result.expect("it has one");
        assert!(found.contains("1.7.24"), "{found}");
        assert_eq!(runtime.streams(), 0);
        assert_eq!(release("1.6.20~ds1"), Some((1, 6)));
        assert_eq!(release("v2.1.0-rc.1"), Some((2, 1)));
        assert_eq!(release("unknown"), None);
    }

    #[test]
    fn root_on_this_machine_has_everything() {
        for probe in probe(Path::new("/sys/fs/cgroup")) {
            assert!(probe.result.is_ok(), "{}: {:?}", probe.name, probe.result);
        }
    }

    #[test]
    fn a_missing_hierarchy_is_named() {
        let error = Hierarchy::detect(Path::new("/proc/self")).expect_err("no cgroups there");
        assert!(
            error.to_string().contains("neither cgroup v2 nor"),
            "{error}"
        );
    }
}
