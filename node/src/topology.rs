//! CPUs and huge pages, as `/sys` lists them.

use std::collections::BTreeMap;
use std::path::Path;

use swiftlet_kubelet::cpu_manager::{Cpu, CpuSet};

/// CPUs of the machine (`Documentation/admin-guide/cputopology.rst` of the kernel).
const CPUS: &str = "/sys/devices/system/cpu";
/// Pools of huge pages (`Documentation/admin-guide/mm/hugetlbpage.rst`).
const HUGEPAGES: &str = "/sys/kernel/mm/hugepages";
/// One KiB.
const KIB: i64 = 1024;

/// All CPUs that are online; empty if the kernel does not tell how they lie.
pub(crate) fn cpus() -> Vec<Cpu> {
    cpus_in(Path::new(CPUS)).unwrap_or_default()
}

fn cpus_in(folder: &Path) -> Option<Vec<Cpu>> {
    let online: CpuSet = text(&folder.join("online"))?.parse().ok()?;
    let cpu = |id: u32| {
        let topology = folder.join(format!("cpu{id}/topology"));
        let socket = text(&topology.join("physical_package_id"))?.parse().ok();
        // Cores are numbered anew in each socket; the first of its threads names one everywhere.
        let threads = ["core_cpus_list", "thread_siblings_list"];
        let threads = threads.iter().find_map(|file| text(&topology.join(file)))?;
        let threads: CpuSet = threads.parse().ok()?;
        Some(Cpu {
            id,
            core: *threads.0.first()?,
            socket: socket.unwrap_or_default(),
        })
    };
    online.0.iter().map(|id| cpu(*id)).collect()
}

/// Bytes in each pool, named as in the API.
pub(crate) fn hugepages() -> BTreeMap<String, i64> {
    hugepages_in(Path::new(HUGEPAGES))
}

fn hugepages_in(folder: &Path) -> BTreeMap<String, i64> {
    let pools = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let pool = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let kib: i64 = name
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let count: i64 = text(&path.join("nr_hugepages"))?.parse().ok()?;
        let size = match kib {
            kib if kib % (KIB * KIB) == 0 => format!("{}Gi", kib / KIB / KIB),
            kib if kib % KIB == 0 => format!("{}Mi", kib / KIB),
            kib => format!("{kib}Ki"),
        };
        let bytes = kib.saturating_mul(KIB).saturating_mul(count);
        Some((format!("hugepages-{size}"), bytes))
    };
    pools.filter_map(|entry| pool(&entry.path())).collect()
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cpus() {
        assert!(!cpus().is_empty());
    }

    #[test]
    fn pools_are_named_as_in_the_api() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, count) in [("hugepages-2048kB", "3"), ("hugepages-1048576kB", "1")] {
            let pool = folder.path().join(name);
            std::fs::create_dir(&pool).expect("made");
            std::fs::write(pool.join("nr_hugepages"), count).expect("written");
        }
        let pools = hugepages_in(folder.path());
        assert_eq!(pools["hugepages-2Mi"], 6 << 20);
        assert_eq!(pools["hugepages-1Gi"], 1 << 30);
    }
}
