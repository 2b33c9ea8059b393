//! Fills the programs' table of offsets from the running kernel's BTF.

use swiftlet_ebpf_abi::offsets as at;

use crate::PlegError;
use crate::btf::Btf;
use crate::hierarchy::Hierarchy;

/// Size of a pointer in the kernels that are served.
const POINTER_BYTES: u32 = 8;

/// Members of structures that are read as they stand.
const MEMBERS: [(usize, &str, &str); 22] = [
    (at::TASK_CGROUPS, "task_struct", "cgroups"),
    (at::CSS_CGROUP, "cgroup_subsys_state", "cgroup"),
    (at::CGROUP_KN, "cgroup", "kn"),
    (at::CGROUP_ROOT, "cgroup", "root"),
    (at::ROOT_HIERARCHY_ID, "cgroup_root", "hierarchy_id"),
    (at::KN_ID, "kernfs_node", "id"),
    (at::KN_NAME, "kernfs_node", "name"),
    (at::TASK_SIGNAL, "task_struct", "signal"),
    (at::TASK_TGID, "task_struct", "tgid"),
    (at::TASK_GROUP_LEADER, "task_struct", "group_leader"),
    (at::TASK_EXIT_CODE, "task_struct", "exit_code"),
    (at::TASK_REAL_PARENT, "task_struct", "real_parent"),
    (at::TASK_NSPROXY, "task_struct", "nsproxy"),
    (at::NSPROXY_MNT_NS, "nsproxy", "mnt_ns"),
    (at::SIGNAL_LIVE, "signal_struct", "live"),
    (at::SIGNAL_FLAGS, "signal_struct", "flags"),
    (
        at::SIGNAL_GROUP_EXIT_CODE,
        "signal_struct",
        "group_exit_code",
    ),
    (at::PID_LEVEL, "pid", "level"),
    (at::PID_NUMBERS, "pid", "numbers"),
    (at::UPID_NR, "upid", "nr"),
    // The two that follow are completed below.
    (at::CGROUP_PARENT, "cgroup", "self"),
    (at::SIGNAL_TGID_PID, "signal_struct", "pids"),
];

/// The table for this kernel and hierarchy.
pub(crate) fn offsets(btf: &Btf, hierarchy: &Hierarchy) -> Result<[u32; at::LEN], PlegError> {
    let mut table = [0; at::LEN];
    for (index, structure, member) in MEMBERS {
        table[index] = btf.offset(structure, member)?;
    }
    table[at::CGROUP_PARENT] += btf.offset("cgroup_subsys_state", "parent")?;
    table[at::SIGNAL_TGID_PID] += btf.value("pid_type", "PIDTYPE_TGID")? * POINTER_BYTES;
    table[at::UPID_SIZE] = btf.size("upid")?;
    table[at::HIERARCHY_ID] = hierarchy.id;
    if let Some(controller) = hierarchy.controller {
        let index = btf.value("cgroup_subsys_id", &format!("{controller}_cgrp_id"))?;
        table[at::CSS_SET_LINK] = btf.offset("css_set", "subsys")? + index * POINTER_BYTES;
        table[at::LINK_IS_CSS] = 1;
    } else {
        table[at::CSS_SET_LINK] = btf.offset("css_set", "dfl_cgrp")?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(controller: Option<&'static str>) -> Hierarchy {
        Hierarchy {
            mount: "/sys/fs/cgroup".into(),
            id: 8,
            controller,
        }
    }

    #[test]
    fn both_kinds_of_hierarchy_resolve_on_this_kernel() {
        let btf = Btf::of_kernel().expect("this kernel shows its BTF");
        let v1 = offsets(&btf, &hierarchy(Some("pids"))).expect("offsets for v1");
        let v2 = offsets(&btf, &hierarchy(None)).expect("offsets for v2");
        assert_eq!((v1[at::LINK_IS_CSS], v2[at::LINK_IS_CSS]), (1, 0));
        assert_ne!(v1[at::CSS_SET_LINK], v2[at::CSS_SET_LINK]);
        assert_eq!(v1[at::TASK_CGROUPS], v2[at::TASK_CGROUPS]);
    }
}
