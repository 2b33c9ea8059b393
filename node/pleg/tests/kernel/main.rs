//! The event source against the real kernel: cgroups, namespaces and processes, no container
//! runtime. Needs root, as the node does.
#![forbid(unsafe_code)]

mod adoption;
mod container;
mod exits;
mod fallback;
mod load;
mod oom;
mod quiet;
mod runc;
mod runtime;
mod source;
mod sources;
mod suite;
