//! Which CPUs a container gets: whole sockets, then whole cores, then what is left of the fullest,
//! so that containers share as few caches as can be. Pure.

use std::collections::BTreeMap;

use crate::cpu_manager::topology::{Cpu, CpuSet};

/// Chooses `count` of the `free` CPUs; `None` if there are not so many.
pub(super) fn choose(all: &[Cpu], free: &CpuSet, count: usize) -> Option<CpuSet> {
    let mut open: Vec<Cpu> = all
        .iter()
        .copied()
        .filter(|cpu| free.0.contains(&cpu.id))
        .collect();
    if open.len() < count {
        return None;
    }
    let mut chosen = CpuSet::default();
    take_whole(all, &mut open, &mut chosen, count, |cpu| cpu.socket);
    take_whole(all, &mut open, &mut chosen, count, |cpu| cpu.core);
    // What is left fills gaps: the sockets and cores with the least free go first.
    let sockets = sizes(&open, |cpu| cpu.socket);
    let cores = sizes(&open, |cpu| cpu.core);
    open.sort_by_key(|cpu| (sockets[&cpu.socket], cores[&cpu.core], cpu.id));
    let missing = count - chosen.len();
    chosen.0.extend(open.iter().take(missing).map(|cpu| cpu.id));
    Some(chosen)
}

/// Takes groups of which every CPU is free, as long as one fits. Of equal ones the first in a
/// socket with the least free.
fn take_whole(
    all: &[Cpu],
    open: &mut Vec<Cpu>,
    chosen: &mut CpuSet,
    count: usize,
    group: impl Fn(&Cpu) -> u32,
) {
    let whole = sizes(all, &group);
    loop {
        let free = sizes(open, &group);
        let sockets = sizes(open, |cpu| cpu.socket);
        let missing = count - chosen.len();
        let fitting = open.iter().filter(|cpu| {
            let size = free[&group(cpu)];
            size == whole[&group(cpu)] && size <= missing
        });
        let best = fitting.min_by_key(|cpu| (sockets[&cpu.socket], cpu.socket, group(cpu)));
        let Some(best) = best.map(&group) else {
            return;
        };
        let taken = open.iter().filter(|cpu| group(cpu) == best);
        chosen.0.extend(taken.map(|cpu| cpu.id));
        open.retain(|cpu| group(cpu) != best);
    }
}

fn sizes(cpus: &[Cpu], group: impl Fn(&Cpu) -> u32) -> BTreeMap<u32, usize> {
    let mut sizes = BTreeMap::new();
    for cpu in cpus {
        *sizes.entry(group(cpu)).or_default() += 1;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two sockets of four cores of two threads: CPU n and n + 8 share a core.
    fn machine() -> Vec<Cpu> {
        let cpu = |id| Cpu {
            id,
            core: id % 8,
            socket: (id % 8) / 4,
        };
        (0..16).map(cpu).collect()
    }

    fn chosen(free: &str, count: usize) -> String {
        let free = free.parse().unwrap();
        choose(&machine(), &free, count).unwrap().to_string()
    }

    #[test]
    fn a_container_gets_whole_sockets_and_cores_if_they_are_free() {
        assert_eq!(chosen("0-15", 8), "0-3,8-11");
        assert_eq!(chosen("0-15", 2), "0,8");
        assert_eq!(chosen("1-15", 10), "1,4-7,9,12-15");
        // CPU 8 has lost its twin: it fills the gap that one CPU is.
        assert_eq!(chosen("1-15", 1), "8");
        assert_eq!(chosen("1-15", 3), "1,8-9");
    }

    proptest! {
        #[test]
        fn what_is_chosen_was_free_and_is_as_much_as_was_asked_for(
            free in prop::collection::btree_set(0_u32..16, 0..16), count in 0_usize..18
        ) {
            let free = CpuSet(free);
            match choose(&machine(), &free, count) {
                None => prop_assert!(count > free.len()),
                Some(chosen) => {
                    prop_assert_eq!(chosen.len(), count);
                    prop_assert!(chosen.without(&free).is_empty());
                }
            }
        }
    }
}
