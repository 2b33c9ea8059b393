//! The container's own program runs.
//!
//! A runtime enters the container's cgroup before it is a container: runc's first process may exec
//! a sealed copy of itself there, forks twice, and hooks may run. So an exec counts as the start
//! only if the process is number 1 of its pid namespace or, for pods that share the host's or the
//! sandbox's pid namespace, if it is the first that has another mount namespace than its parent:
//! the runtime's own processes and hooks never are. Whatever is exec'd later (`kubectl exec`,
//! probes) finds the container started.

use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use swiftlet_ebpf_abi::{EventKind, TrackedState};

use crate::kernel::{self, Pointer};
use crate::maps::{self, Report};

#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec_btf(context: BtfTracePointContext) -> i32 {
    on_exec(context.arg(0)).map_or(0, |()| 0)
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn exec_raw(context: RawTracePointContext) -> i32 {
    on_exec(context.arg(0)).map_or(0, |()| 0)
}

#[inline(always)]
fn on_exec(task: Pointer) -> Option<()> {
    let container = maps::container_of(kernel::cgroup_of_task(task)?)?;
    let record = container.record;
    // SAFETY: a map value stays readable and writable until the program returns.
    let (state, parent) = unsafe { ((*record).state, (*record).owner()) };
    if state != TrackedState::New as u32 {
        return None;
    }
    if !kernel::is_namespace_init(task) && !kernel::has_own_mounts(task) {
        return None;
    }
    let process = kernel::process_id(task)?;
    // SAFETY: as above. Only one process of a container can get here, so no two CPUs write at once.
    unsafe {
        (*record).init = process;
        (*record).state = TrackedState::Started as u32;
    }
    maps::report(&Report {
        kind: EventKind::Started,
        cgroup: container.cgroup,
        parent,
        process,
        status: 0,
        oom: 0,
        name: core::ptr::null(),
    });
    Some(())
}
