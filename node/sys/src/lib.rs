//! Kernel requests: files by io_uring, mounts, namespaces, cgroup files.
//!
//! The only crate of the host side in which `unsafe` may occur, and the only one that asks the
//! kernel by number. The policy: one function is one request; an `unsafe` block states in a
//! `SAFETY:` comment every invariant that it relies on and why it holds; if it is there for
//! speed, a `JUSTIFICATION:` comment gives the measurement. What a safe crate (`nix`,
//! `tokio-uring`, the standard library) offers is taken from there.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod beneath;
pub mod cgroup;
pub mod descriptors;
pub mod file_thread;
pub mod inotify;
pub mod mount;
pub mod netns;
pub mod propagation;
pub mod ready;
pub mod walk;
