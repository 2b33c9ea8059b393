//! The kernel side: reports what happens to the containers of tracked pods, and nothing else.
//!
//! ```text
//! made.rs     cgroup_mkdir, cgroup_rmdir    adopts the children of a pod's cgroup, forgets them
//! exec.rs     sched_process_exec            the container's own program runs
//! exit.rs     sched_process_exit            its first process is gone, with its status
//! oom.rs      mark_victim                   the OOM killer chose a process of the container
//! ```
//!
//! Each is there twice, as a BTF tracepoint and as a raw one, around the same function: kernels
//! that refuse the first kind take the second.
#![no_std]
#![no_main]

mod exec;
mod exit;
mod kernel;
mod made;
mod maps;
mod oom;

/// The verifier rejects a program in which this is reachable.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel lends `bpf_probe_read_kernel` and the ring buffer to programs with such a licence
/// only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
