//! Records that the kernel programs and the node share.
//!
//! Both sides are compiled from this file, so a record cannot mean two things. The node sees
//! records as arrays of words ([`Tracked::to_words`], [`Event::decode`]), which keeps it free of
//! `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

pub mod event;
pub mod offsets;
pub mod tracked;

pub use event::{Event, EventKind};
pub use tracked::{Tracked, TrackedKind, TrackedState};

/// Size of the ring buffer in bytes; the kernel wants a power of two. A reader that stalls for half
/// a second at 54,000 events a second needs this much.
pub const RING_BYTES: u32 = 8 << 20;

/// Most cgroups that can be tracked: 2,500 pods, each with its own cgroup, a sandbox, two
/// containers and room for as many again that are being made or removed.
pub const TRACKED_MAX: u32 = 32_768;

/// Most victims of the OOM killer that are remembered until they exit (kernels whose `mark_victim`
/// names only a process).
pub const OOM_VICTIMS_MAX: u32 = 1024;

/// Names of the maps and globals in the object.
pub mod names {
    /// cgroup id → [`crate::Tracked`].
    pub const TRACKED: &str = "TRACKED";
    /// The ring of [`crate::Event`]s.
    pub const EVENTS: &str = "EVENTS";
    /// Per-CPU counters, see [`crate::counters`].
    pub const COUNTERS: &str = "COUNTERS";
    /// Field offsets, see [`crate::offsets`].
    pub const OFFSETS: &str = "OFFSETS";
}

/// Indexes of the per-CPU counters.
pub mod counters {
    /// Events that found the ring full.
    pub const RING_FULL: u32 = 0;
    /// Cgroups that found the map full.
    pub const MAP_FULL: u32 = 1;
    /// How many there are.
    pub const LEN: u32 = 2;
}
