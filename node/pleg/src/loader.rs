//! Loads and attaches the kernel programs.

use aya::maps::{HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError, RawTracePoint};
use aya::{Btf as AyaBtf, Ebpf, EbpfLoader};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use swiftlet_ebpf_abi::names;

use crate::btf::Btf;
use crate::hierarchy::Hierarchy;
use crate::{PlegError, layout, probe};

/// The object that build.rs made.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/programs.o"));

/// The map of tracked cgroups as the node writes it: [`swiftlet_ebpf_abi::Tracked`] in words.
pub(crate) type TrackedMap = HashMap<MapData, u64, [u32; 6]>;

/// The programs, attached, and the maps that the node uses.
pub(crate) struct Loaded {
    /// Detached when dropped.
    pub(crate) programs: Ebpf,
    pub(crate) map: TrackedMap,
    pub(crate) ring: RingBuf<MapData>,
    pub(crate) counters: PerCpuArray<MapData, u64>,
}

/// One hook: the same function as a BTF tracepoint and as a raw one.
struct Hook {
    tracepoint: &'static str,
    btf: &'static str,
    raw: &'static str,
}

const HOOKS: [Hook; 4] = [
    Hook {
        tracepoint: "cgroup_mkdir",
        btf: "mkdir_btf",
        raw: "mkdir_raw",
    },
    Hook {
        tracepoint: "cgroup_rmdir",
        btf: "rmdir_btf",
        raw: "rmdir_raw",
    },
    Hook {
        tracepoint: "sched_process_exec",
        btf: "exec_btf",
        raw: "exec_raw",
    },
    Hook {
        tracepoint: "sched_process_exit",
        btf: "exit_btf",
        raw: "exit_raw",
    },
];

const OOM: &str = "mark_victim";
const OOM_BY_TASK: Hook = Hook {
    tracepoint: OOM,
    btf: "victim_task_btf",
    raw: "victim_task_raw",
};
const OOM_BY_PID: Hook = Hook {
    tracepoint: OOM,
    btf: "victim_pid_btf",
    raw: "victim_pid_raw",
};

/// Loads everything and attaches it.
pub(crate) fn load(hierarchy: &Hierarchy) -> Result<Loaded, PlegError> {
    let (mut programs, btf, kernel) = load_object(hierarchy)?;
    for hook in &HOOKS {
        attach(&mut programs, hook, &kernel)?;
    }
    let oom = match btf.first_argument_is_pointer(OOM) {
        Some(true) => Some(&OOM_BY_TASK),
        Some(false) => Some(&OOM_BY_PID),
        None => None,
    };
    match oom.map(|hook| attach(&mut programs, hook, &kernel)) {
        Some(Ok(())) => (),
        // The runtime's own record still says so, some milliseconds later.
        Some(Err(error)) => tracing::warn!(%error, "OOM kills are not reported by the kernel"),
        None => tracing::warn!("this kernel does not report OOM kills"),
    }
    Ok(Loaded {
        map: take(&mut programs, names::TRACKED)?,
        ring: take(&mut programs, names::EVENTS)?,
        counters: take(&mut programs, names::COUNTERS)?,
        programs,
    })
}

/// Loads the object and its programs as `load` does, but attaches nothing.
pub(crate) fn try_load(hierarchy: &Hierarchy) -> Result<(), PlegError> {
    let (mut programs, _, kernel) = load_object(hierarchy)?;
    for hook in &HOOKS {
        load_one(&mut programs, hook, &kernel)?;
    }
    Ok(())
}

fn load_object(hierarchy: &Hierarchy) -> Result<(Ebpf, Btf, AyaBtf), PlegError> {
    probe::capabilities()?;
    let btf = Btf::of_kernel()?;
    let offsets = layout::offsets(&btf, hierarchy)?;
    raise_memory_limit();
    let kernel = AyaBtf::from_sys_fs().map_err(|source| PlegError::Object {
        source: Box::new(source.into()),
    })?;
    let programs = EbpfLoader::new()
        .btf(Some(&kernel))
        .override_global(names::OFFSETS, &offsets, true)
        .load(OBJECT)
        .map_err(|source| PlegError::Object {
            source: Box::new(source),
        })?;
    Ok((programs, btf, kernel))
}

/// Kernels before 5.11 count maps against RLIMIT_MEMLOCK. Failing to raise it is no error: the
/// kernel says so when it matters.
fn raise_memory_limit() {
    let resource = Resource::RLIMIT_MEMLOCK;
    if setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        return;
    }
    if let Ok((_, hard)) = getrlimit(resource)
        && let Err(error) = setrlimit(resource, hard, hard)
    {
        tracing::debug!(%error, "RLIMIT_MEMLOCK stays as it is");
    }
}

/// Attaches a hook as the kind that the kernel takes.
fn attach(programs: &mut Ebpf, hook: &Hook, kernel: &AyaBtf) -> Result<(), PlegError> {
    let refused = |source| PlegError::Program {
        tracepoint: hook.tracepoint,
        source: Box::new(source),
    };
    match load_one(programs, hook, kernel)? {
        Kind::Btf => btf_program(programs, hook)?
            .attach()
            .map(drop)
            .or_else(|error| {
                tracing::debug!(tracepoint = hook.tracepoint, %error, "trying a raw tracepoint");
                let raw = raw_program(programs, hook)?;
                raw.load().map_err(refused)?;
                raw.attach(hook.tracepoint).map(drop).map_err(refused)
            }),
        Kind::Raw => raw_program(programs, hook)?
            .attach(hook.tracepoint)
            .map(drop)
            .map_err(refused),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Btf,
    Raw,
}

fn load_one(programs: &mut Ebpf, hook: &Hook, kernel: &AyaBtf) -> Result<Kind, PlegError> {
    let first = btf_program(programs, hook)?.load(hook.tracepoint, kernel);
    let Err(error) = first else {
        return Ok(Kind::Btf);
    };
    tracing::debug!(tracepoint = hook.tracepoint, %error, "trying a raw tracepoint");
    raw_program(programs, hook)?
        .load()
        .map(|()| Kind::Raw)
        .map_err(|source| PlegError::Program {
            tracepoint: hook.tracepoint,
            source: Box::new(source),
        })
}

fn btf_program<'a>(
    programs: &'a mut Ebpf,
    hook: &Hook,
) -> Result<&'a mut BtfTracePoint, PlegError> {
    program(programs, hook.btf)
}

fn raw_program<'a>(
    programs: &'a mut Ebpf,
    hook: &Hook,
) -> Result<&'a mut RawTracePoint, PlegError> {
    program(programs, hook.raw)
}

fn program<'a, P>(programs: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, PlegError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = programs
        .program_mut(name)
        .ok_or(PlegError::NotInObject { name })?;
    program
        .try_into()
        .map_err(|_| PlegError::NotInObject { name })
}

fn take<M>(programs: &mut Ebpf, name: &'static str) -> Result<M, PlegError>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = programs
        .take_map(name)
        .ok_or(PlegError::NotInObject { name })?;
    M::try_from(map).map_err(|source| PlegError::Map {
        name,
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn kernels_without_btf_tracepoints_are_served_by_raw_ones() {
        let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).expect("cgroups");
        let (mut programs, _, _) = load_object(&hierarchy).expect("the object is accepted");
        for hook in HOOKS.iter().chain([&OOM_BY_TASK, &OOM_BY_PID]) {
            let raw = raw_program(&mut programs, hook).expect("it is in the object");
            raw.load()
                .unwrap_or_else(|error| panic!("{}: {error}", hook.raw));
            raw.attach(hook.tracepoint).expect("the tracepoint exists");
        }
    }

    #[test]
    fn the_layout_of_cgroup_v2_is_accepted_too() {
        let mount = Path::new("/sys/fs/cgroup").to_owned();
        try_load(&Hierarchy {
            mount,
            id: 0,
            controller: None,
        })
        .expect("the programs are accepted");
    }
}
