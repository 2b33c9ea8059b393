//! CPUs of their own for containers of Guaranteed pods that ask for whole ones; the others share
//! the rest.
//!
//! ```text
//! topology.rs  sets of CPUs, cores, sockets: pure      allocate.rs  which CPUs: pure
//! state.rs     who has which: pure, and its file       keep.rs      the one owner of the state
//! ```
//!
//! Source of rules and words: `pkg/kubelet/cm/cpumanager` of Kubernetes.

mod allocate;
mod keep;
mod state;
mod topology;

pub(crate) use keep::{Cpus, save};
pub use state::CpuError;
pub use topology::{Cpu, CpuSet};

/// `cpuManagerPolicy` and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuManagerOptions {
    /// The policy.
    pub policy: CpuPolicy,
    /// `reservedSystemCPUs`: never given to one container alone. If empty, as many as
    /// `systemReserved` and `kubeReserved` name are chosen.
    pub reserved: CpuSet,
}

/// `cpuManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPolicy {
    /// All containers share all CPUs.
    #[default]
    None,
    /// Whole CPUs for whole requests.
    Static,
}

impl CpuPolicy {
    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
        }
    }
}
