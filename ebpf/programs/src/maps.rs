//! The maps, and how a record gets into the ring.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{HashMap, LruHashMap, PerCpuArray, RingBuf};
use swiftlet_ebpf_abi::{
    Event, EventKind, OOM_VICTIMS_MAX, RING_BYTES, TRACKED_MAX, Tracked, TrackedKind, counters,
};

#[map]
pub static TRACKED: HashMap<u64, Tracked> = HashMap::with_max_entries(TRACKED_MAX, 0);

#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(counters::LEN, 0);

/// Processes that the OOM killer chose, where the tracepoint tells only their id.
#[map]
pub static OOM_VICTIMS: LruHashMap<u32, u32> = LruHashMap::with_max_entries(OOM_VICTIMS_MAX, 0);

/// A tracked container: its cgroup and its record in the map.
pub struct Container {
    pub cgroup: u64,
    pub record: *mut Tracked,
}

/// The container to which a cgroup belongs. Untracked cgroups cost this one lookup.
#[inline(always)]
pub fn container_of(cgroup: u64) -> Option<Container> {
    let record = TRACKED.get_ptr_mut(cgroup)?;
    // SAFETY: a map value stays readable until the program returns, even if it is removed
    // meanwhile.
    let (kind, owner) = unsafe { ((*record).kind, (*record).owner()) };
    if kind == TrackedKind::Container as u32 {
        return Some(Container { cgroup, record });
    }
    if kind == TrackedKind::Inner as u32 {
        return Some(Container {
            cgroup: owner,
            record: TRACKED.get_ptr_mut(owner)?,
        });
    }
    None
}

/// Counts on this CPU: the target has no 64-bit atomic addition, and needs none here.
#[inline(always)]
pub fn count(index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: the value belongs to this CPU, and programs are not preempted by each other in
        // between.
        unsafe { *counter += 1 };
    }
}

/// What an event says besides kind and time.
pub struct Report {
    pub kind: EventKind,
    pub cgroup: u64,
    pub parent: u64,
    pub process: u32,
    pub status: u32,
    pub oom: u32,
    /// `kernfs_node.name` in the kernel's memory, or null.
    pub name: *const u8,
}

/// Writes one event; a full ring counts it instead.
#[inline(always)]
pub fn report(report: &Report) {
    let Some(mut slot) = EVENTS.reserve::<Event>(0) else {
        return count(counters::RING_FULL);
    };
    let event = slot.as_mut_ptr();
    // SAFETY: `event` points to reserved memory of that size; every field that the node reads is
    // written, and the name always gets its ending zero.
    unsafe {
        (*event).at_ns = bpf_ktime_get_ns();
        (*event).cgroup = report.cgroup;
        (*event).parent = report.parent;
        (*event).kind = report.kind as u32;
        (*event).process = report.process;
        (*event).status = report.status;
        (*event).oom = report.oom;
        (*event).name[0] = 0;
        if !report.name.is_null() {
            aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(
                (&raw mut (*event).name).cast(),
                swiftlet_ebpf_abi::event::NAME_BYTES as u32,
                report.name.cast(),
            );
        }
    }
    slot.submit(0);
}
