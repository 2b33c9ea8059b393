//! Kernel requests: files by io_uring, mounts, namespaces, cgroup files.
