//! Where the kernel keeps what the programs read: one global array, filled by the loader from the
//! running kernel's BTF. The programs have no relocations of their own.

/// Offset of `task_struct.cgroups`.
pub const TASK_CGROUPS: usize = 0;
/// Offset in `css_set` of the pointer to follow: `subsys[controller]` or `dfl_cgrp`.
pub const CSS_SET_LINK: usize = 1;
/// 1 if that pointer is a `cgroup_subsys_state` (v1), 0 if it is a `cgroup` (v2).
pub const LINK_IS_CSS: usize = 2;
/// Offset of `cgroup_subsys_state.cgroup`.
pub const CSS_CGROUP: usize = 3;
/// Offset of `cgroup.self.parent`.
pub const CGROUP_PARENT: usize = 4;
/// Offset of `cgroup.kn`.
pub const CGROUP_KN: usize = 5;
/// Offset of `cgroup.root`.
pub const CGROUP_ROOT: usize = 6;
/// Offset of `cgroup_root.hierarchy_id`.
pub const ROOT_HIERARCHY_ID: usize = 7;
/// Offset of `kernfs_node.id`.
pub const KN_ID: usize = 8;
/// Offset of `kernfs_node.name`.
pub const KN_NAME: usize = 9;
/// The hierarchy whose cgroups are watched (kernfs ids of two v1 hierarchies may be equal).
pub const HIERARCHY_ID: usize = 10;
/// Offset of `task_struct.signal`.
pub const TASK_SIGNAL: usize = 11;
/// Offset of `task_struct.tgid`.
pub const TASK_TGID: usize = 12;
/// Offset of `task_struct.group_leader`.
pub const TASK_GROUP_LEADER: usize = 13;
/// Offset of `task_struct.exit_code`.
pub const TASK_EXIT_CODE: usize = 14;
/// Offset of `task_struct.real_parent`.
pub const TASK_REAL_PARENT: usize = 15;
/// Offset of `task_struct.nsproxy`.
pub const TASK_NSPROXY: usize = 16;
/// Offset of `nsproxy.mnt_ns`.
pub const NSPROXY_MNT_NS: usize = 17;
/// Offset of `signal_struct.live`.
pub const SIGNAL_LIVE: usize = 18;
/// Offset of `signal_struct.flags`.
pub const SIGNAL_FLAGS: usize = 19;
/// Offset of `signal_struct.group_exit_code`.
pub const SIGNAL_GROUP_EXIT_CODE: usize = 20;
/// Offset of `signal_struct.pids[PIDTYPE_TGID]`.
pub const SIGNAL_TGID_PID: usize = 21;
/// Offset of `pid.level`.
pub const PID_LEVEL: usize = 22;
/// Offset of `pid.numbers`.
pub const PID_NUMBERS: usize = 23;
/// Size of `struct upid`.
pub const UPID_SIZE: usize = 24;
/// Offset of `upid.nr`.
pub const UPID_NR: usize = 25;
/// How many words the array has.
pub const LEN: usize = 26;
