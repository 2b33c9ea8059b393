//! The OOM killer chose a process: its container remembers it until the exit that follows.
//!
//! `mark_victim` names a task since Linux 6.9 and a process id before; the loader picks by the
//! kernel's BTF.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};

use crate::kernel::{self, Pointer};
use crate::maps::{self, OOM_VICTIMS};

#[btf_tracepoint(function = "mark_victim")]
pub fn victim_task_btf(context: BtfTracePointContext) -> i32 {
    on_victim_task(context.arg(0)).map_or(0, |()| 0)
}

#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn victim_task_raw(context: RawTracePointContext) -> i32 {
    on_victim_task(context.arg(0)).map_or(0, |()| 0)
}

#[btf_tracepoint(function = "mark_victim")]
pub fn victim_pid_btf(context: BtfTracePointContext) -> i32 {
    on_victim_pid(context.arg(0))
}

#[raw_tracepoint(tracepoint = "mark_victim")]
pub fn victim_pid_raw(context: RawTracePointContext) -> i32 {
    on_victim_pid(context.arg(0))
}

#[inline(always)]
fn on_victim_task(task: Pointer) -> Option<()> {
    let container = maps::container_of(kernel::cgroup_of_task(task)?)?;
    // SAFETY: a map value stays writable until the program returns.
    unsafe { (*container.record).oom = 1 };
    Some(())
}

/// The victim's cgroup is not known here; its exit looks the process up.
#[inline(always)]
fn on_victim_pid(process: u32) -> i32 {
    let _ = OOM_VICTIMS.insert(process, 1, 0);
    0
}
