//! The Cgroups door: pod cgroups written directly, on cgroup v1 and v2.
#![forbid(unsafe_code)]
