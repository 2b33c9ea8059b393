//! Cgroups come and go below a tracked one.
//!
//! The kernel runs `cgroup_mkdir` before the directory can be seen, so no process can be in a
//! container's cgroup before it is tracked.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use swiftlet_ebpf_abi::{EventKind, Tracked, TrackedKind, counters};

use crate::kernel::{self, Pointer};
use crate::maps::{self, Report, TRACKED};

#[btf_tracepoint(function = "cgroup_mkdir")]
pub fn mkdir_btf(context: BtfTracePointContext) -> i32 {
    on_mkdir(context.arg(0)).map_or(0, |()| 0)
}

#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
pub fn mkdir_raw(context: RawTracePointContext) -> i32 {
    on_mkdir(context.arg(0)).map_or(0, |()| 0)
}

#[btf_tracepoint(function = "cgroup_rmdir")]
pub fn rmdir_btf(context: BtfTracePointContext) -> i32 {
    on_rmdir(context.arg(0)).map_or(0, |()| 0)
}

#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
pub fn rmdir_raw(context: RawTracePointContext) -> i32 {
    on_rmdir(context.arg(0)).map_or(0, |()| 0)
}

#[inline(always)]
fn on_mkdir(cgroup: Pointer) -> Option<()> {
    if !kernel::is_watched_hierarchy(cgroup) {
        return None;
    }
    let parent = kernel::parent_id(cgroup)?;
    let above = TRACKED.get_ptr(parent)?;
    let id = kernel::cgroup_id(cgroup)?;
    // SAFETY: a map value stays readable until the program returns.
    let (kind, owner) = unsafe { ((*above).kind, (*above).owner()) };
    let child = if kind == TrackedKind::Pod as u32 {
        Tracked::new(TrackedKind::Container, parent)
    } else if kind == TrackedKind::Container as u32 {
        Tracked::new(TrackedKind::Inner, parent)
    } else {
        Tracked::new(TrackedKind::Inner, owner)
    };
    if TRACKED.insert(id, child, 0).is_err() {
        maps::count(counters::MAP_FULL);
    }
    if kind == TrackedKind::Pod as u32 {
        let name = kernel::cgroup_name(cgroup)?;
        send(EventKind::Made, id, parent, name);
    }
    Some(())
}

#[inline(always)]
fn on_rmdir(cgroup: Pointer) -> Option<()> {
    if !kernel::is_watched_hierarchy(cgroup) {
        return None;
    }
    let id = kernel::cgroup_id(cgroup)?;
    let record = TRACKED.get_ptr(id)?;
    // SAFETY: a map value stays readable until the program returns.
    let (kind, owner) = unsafe { ((*record).kind, (*record).owner()) };
    let _ = TRACKED.remove(id);
    if kind == TrackedKind::Container as u32 {
        send(EventKind::Removed, id, owner, core::ptr::null());
    }
    Some(())
}

#[inline(always)]
fn send(kind: EventKind, cgroup: u64, parent: u64, name: Pointer) {
    maps::report(&Report {
        kind,
        cgroup,
        parent,
        process: 0,
        status: 0,
        oom: 0,
        name,
    });
}
