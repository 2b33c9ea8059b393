//! Reading the kernel's structures by the offsets that the loader found in its BTF.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use swiftlet_ebpf_abi::offsets as at;

/// Filled by the loader before the programs are loaded; read-only for them, so that the verifier
/// knows each value.
#[unsafe(no_mangle)]
static OFFSETS: [u32; at::LEN] = [0; at::LEN];

/// Some structure of the kernel.
pub type Pointer = *const u8;

/// `SIGNAL_GROUP_EXIT` of the kernel's `include/linux/sched/signal.h`: `group_exit_code` is valid.
const SIGNAL_GROUP_EXIT: u32 = 4;

/// One of the loader's words.
#[inline(always)]
pub fn offset(index: usize) -> usize {
    // SAFETY: `index` is one of the constants below `at::LEN`. Volatile, because the compiler would
    // otherwise take the zeroes above for the truth.
    unsafe {
        (&raw const OFFSETS)
            .cast::<u32>()
            .add(index)
            .read_volatile() as usize
    }
}

/// Reads a field; a pointer that is not valid any more reads as an error, not as a fault.
#[inline(always)]
fn read<T>(base: Pointer, index: usize) -> Option<T> {
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset(index)).cast::<T>()).ok() }
}

/// The watched cgroup of a task.
#[inline(always)]
pub fn cgroup_of_task(task: Pointer) -> Option<u64> {
    let set: Pointer = read(task, at::TASK_CGROUPS)?;
    let mut cgroup: Pointer = read(set, at::CSS_SET_LINK)?;
    if offset(at::LINK_IS_CSS) == 1 {
        cgroup = read(cgroup, at::CSS_CGROUP)?;
    }
    cgroup_id(cgroup)
}

/// A cgroup's id: the inode number of its directory.
#[inline(always)]
pub fn cgroup_id(cgroup: Pointer) -> Option<u64> {
    read(read(cgroup, at::CGROUP_KN)?, at::KN_ID)
}

/// The id of a cgroup's parent.
#[inline(always)]
pub fn parent_id(cgroup: Pointer) -> Option<u64> {
    let state: Pointer = read(cgroup, at::CGROUP_PARENT)?;
    cgroup_id(read(state, at::CSS_CGROUP)?)
}

/// A cgroup's own name, in the kernel's memory.
#[inline(always)]
pub fn cgroup_name(cgroup: Pointer) -> Option<Pointer> {
    read(read(cgroup, at::CGROUP_KN)?, at::KN_NAME)
}

/// Whether a cgroup lies in the hierarchy that is watched.
#[inline(always)]
pub fn is_watched_hierarchy(cgroup: Pointer) -> bool {
    let id: Option<i32> =
        read(cgroup, at::CGROUP_ROOT).and_then(|root: Pointer| read(root, at::ROOT_HIERARCHY_ID));
    id == Some(offset(at::HIERARCHY_ID) as i32)
}

/// A task's process id, as the kernel counts.
#[inline(always)]
pub fn process_id(task: Pointer) -> Option<u32> {
    read(task, at::TASK_TGID)
}

/// Whether every thread of the task's process has ended or is ending.
#[inline(always)]
pub fn is_last_thread(task: Pointer) -> bool {
    let live: Option<i32> =
        read(task, at::TASK_SIGNAL).and_then(|signal: Pointer| read(signal, at::SIGNAL_LIVE));
    live == Some(0)
}

/// What a parent that waits for the process will see.
#[inline(always)]
pub fn wait_status(task: Pointer) -> Option<u32> {
    let signal: Pointer = read(task, at::TASK_SIGNAL)?;
    let flags: u32 = read(signal, at::SIGNAL_FLAGS)?;
    if flags & SIGNAL_GROUP_EXIT != 0 {
        return read(signal, at::SIGNAL_GROUP_EXIT_CODE);
    }
    read(read(task, at::TASK_GROUP_LEADER)?, at::TASK_EXIT_CODE)
}

/// Whether the process is number 1 of its innermost pid namespace.
#[inline(always)]
pub fn is_namespace_init(task: Pointer) -> bool {
    innermost_number(task) == Some(1)
}

#[inline(always)]
fn innermost_number(task: Pointer) -> Option<i32> {
    let pid: Pointer = read(read(task, at::TASK_SIGNAL)?, at::SIGNAL_TGID_PID)?;
    let level: u32 = read(pid, at::PID_LEVEL)?;
    let numbers = pid.wrapping_add(offset(at::PID_NUMBERS));
    let innermost = numbers.wrapping_add(level as usize * offset(at::UPID_SIZE));
    read(innermost, at::UPID_NR)
}

/// Whether the task left the mount namespace of the process that made it. An unreadable one counts
/// as another: the parent is then on its way out.
#[inline(always)]
pub fn has_own_mounts(task: Pointer) -> bool {
    let mine = mount_namespace(task);
    let parent = read(task, at::TASK_REAL_PARENT).and_then(mount_namespace);
    mine.is_some() && mine != parent
}

#[inline(always)]
fn mount_namespace(task: Pointer) -> Option<u64> {
    let proxy: Pointer = read(task, at::TASK_NSPROXY)?;
    read(proxy, at::NSPROXY_MNT_NS)
}
