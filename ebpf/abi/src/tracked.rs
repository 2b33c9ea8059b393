//! What the kernel knows of a cgroup that somebody watches.

/// What a tracked cgroup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TrackedKind {
    /// A pod's: children are containers.
    Pod = 0,
    /// A container's or sandbox's: its first process is reported.
    Container = 1,
    /// Made by a container inside its own cgroup: counts as that container.
    Inner = 2,
}

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TrackedState {
    /// Its own program has not been exec'd.
    New = 0,
    /// It runs, as process `init`.
    Started = 1,
    /// It is gone; nothing that still happens in its cgroup is reported.
    Dead = 2,
}

/// Value of the map `TRACKED`. Whole words only: the node writes it as `[u32; 6]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tracked {
    /// The cgroup above that counts: the pod's for a container, the container's for an inner one.
    pub owner_low: u32,
    /// Upper half of the owner's id.
    pub owner_high: u32,
    /// A [`TrackedKind`].
    pub kind: u32,
    /// A [`TrackedState`].
    pub state: u32,
    /// Process id (the kernel's, not a namespace's) of the container's first process.
    pub init: u32,
    /// 1 after the OOM killer chose a process of the container.
    pub oom: u32,
}

impl Tracked {
    /// A cgroup of that kind in which nothing has happened yet.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is kept beside it"
    )]
    pub const fn new(kind: TrackedKind, owner: u64) -> Self {
        Self {
            owner_low: owner as u32,
            owner_high: (owner >> 32) as u32,
            kind: kind as u32,
            state: TrackedState::New as u32,
            init: 0,
            oom: 0,
        }
    }

    /// A container whose program runs already as process `init`.
    #[must_use]
    pub const fn running(owner: u64, init: u32) -> Self {
        let fresh = Self::new(TrackedKind::Container, owner);
        Self {
            state: TrackedState::Started as u32,
            init,
            ..fresh
        }
    }

    /// The cgroup above that counts.
    #[must_use]
    pub const fn owner(&self) -> u64 {
        self.owner_low as u64 | (self.owner_high as u64) << 32
    }

    /// The record as the node writes it into the map.
    #[must_use]
    pub const fn to_words(self) -> [u32; 6] {
        [
            self.owner_low,
            self.owner_high,
            self.kind,
            self.state,
            self.init,
            self.oom,
        ]
    }
}
