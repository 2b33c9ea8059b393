//! The container's first process is gone.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use swiftlet_ebpf_abi::{EventKind, TrackedState};

use crate::kernel::{self, Pointer};
use crate::maps::{self, Container, Report};

#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_btf(context: BtfTracePointContext) -> i32 {
    on_exit(context.arg(0)).map_or(0, |()| 0)
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn exit_raw(context: RawTracePointContext) -> i32 {
    on_exit(context.arg(0)).map_or(0, |()| 0)
}

/// Newer kernels pass `group_dead`; older ones do not, so the count of live threads is read, which
/// was lowered just before. Two threads that end at the same moment may then both see zero: the
/// node takes only the first report of a container's death.
#[inline(always)]
fn on_exit(task: Pointer) -> Option<()> {
    let container = maps::container_of(kernel::cgroup_of_task(task)?)?;
    if !kernel::is_last_thread(task) {
        return None;
    }
    let process = kernel::process_id(task)?;
    let record = container.record;
    // SAFETY: a map value stays readable and writable until the program returns.
    unsafe {
        if maps::OOM_VICTIMS.get_ptr(process).is_some() {
            (*record).oom = 1;
        }
        if (*record).state == TrackedState::Started as u32 && (*record).init == process {
            (*record).state = TrackedState::Dead as u32;
            return send(EventKind::Exited, task, &container, process);
        }
        if (*record).state == TrackedState::New as u32 && kernel::is_namespace_init(task) {
            return send(EventKind::Aborted, task, &container, process);
        }
    }
    None
}

#[inline(always)]
fn send(kind: EventKind, task: Pointer, container: &Container, process: u32) -> Option<()> {
    // SAFETY: as in `on_exit`.
    let (parent, oom) = unsafe { ((*container.record).owner(), (*container.record).oom) };
    maps::report(&Report {
        kind,
        cgroup: container.cgroup,
        parent,
        process,
        status: kernel::wait_status(task)?,
        oom,
        name: core::ptr::null(),
    });
    Some(())
}
