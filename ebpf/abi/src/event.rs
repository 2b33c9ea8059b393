//! What the kernel tells the node.

/// Longest reported name of a cgroup: `cri-containerd-<64 hex digits>.scope` fits.
pub const NAME_BYTES: usize = 96;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A cgroup was made below a pod's: a container or a sandbox is about to run.
    Made = 1,
    /// The container's own program has been exec'd.
    Started = 2,
    /// The container's first process has ended after its program ran.
    Exited = 3,
    /// The container's first process has ended before it became the container's program.
    Aborted = 4,
    /// The container's cgroup is gone.
    Removed = 5,
}

/// One record of the ring.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub at_ns: u64,
    /// The container's cgroup.
    pub cgroup: u64,
    /// The pod's cgroup.
    pub parent: u64,
    /// An [`EventKind`].
    pub kind: u32,
    /// Process id as the kernel counts; 0 where no process is meant.
    pub process: u32,
    /// Wait status of an exit: code in bits 8 to 15, signal in bits 0 to 6.
    pub status: u32,
    /// 1 if the OOM killer chose a process of the container before.
    pub oom: u32,
    /// Name of a cgroup that was made, ended by a zero.
    pub name: [u8; NAME_BYTES],
}

impl Event {
    /// Size of a record in the ring.
    pub const BYTES: usize = 40 + NAME_BYTES;

    /// Reads a record; [`None`] if it is shorter than one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(eight)
        };
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&bytes[40..]);
        Some(Self {
            at_ns: long(0),
            cgroup: long(8),
            parent: long(16),
            kind: word(24),
            process: word(28),
            status: word(32),
            oom: word(36),
            name,
        })
    }

    /// What happened; [`None`] for a kind that this build does not know.
    #[must_use]
    pub const fn kind(&self) -> Option<EventKind> {
        Some(match self.kind {
            1 => EventKind::Made,
            2 => EventKind::Started,
            3 => EventKind::Exited,
            4 => EventKind::Aborted,
            5 => EventKind::Removed,
            _ => return None,
        })
    }

    /// The name without its padding; empty if it is not text.
    #[must_use]
    pub fn name(&self) -> &str {
        let end = self
            .name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.name[..end]).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<Event>() == Event::BYTES);
