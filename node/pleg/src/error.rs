//! What can go wrong between the node and the kernel's events.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use swiftlet_model::runtime::RuntimeError;

/// Why a source of events cannot be used, or one pod or container cannot be tracked.
#[derive(Debug, thiserror::Error)]
pub enum PlegError {
    /// The options say so.
    #[error("switched off")]
    SwitchedOff,
    /// The kernel does not describe its own types.
    #[error("{path} cannot be read: the kernel needs CONFIG_DEBUG_INFO_BTF")]
    NoBtf {
        /// The kernel's BTF.
        path: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel's BTF is not what it should be.
    #[error("the kernel's BTF is damaged at byte {at}")]
    BadBtf {
        /// Where.
        at: usize,
    },
    /// The kernel has other structures than the programs know.
    #[error("the kernel's BTF has no {what}")]
    NotInBtf {
        /// Type and member.
        what: String,
    },
    /// The process may not do it.
    #[error("{missing} is missing (or CAP_SYS_ADMIN)")]
    Capability {
        /// The capabilities.
        missing: &'static str,
    },
    /// No cgroup hierarchy to watch.
    #[error("{root} has neither cgroup v2 nor the v1 controllers pids, memory or cpu")]
    NoHierarchy {
        /// Where it was looked for.
        root: PathBuf,
    },
    /// A file of the kernel cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The object or its maps were refused.
    #[error("the kernel refused the eBPF object or its maps")]
    Object {
        /// What the kernel said.
        #[source]
        source: Box<aya::EbpfError>,
    },
    /// Part of the object is missing.
    #[error("the eBPF object has no {name}")]
    NotInObject {
        /// Map or program.
        name: &'static str,
    },
    /// A map cannot be used.
    #[error("the eBPF map {name} cannot be used")]
    Map {
        /// The map.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<aya::maps::MapError>,
    },
    /// A program was refused as BTF tracepoint and as raw tracepoint.
    #[error("the kernel refused the program on {tracepoint}")]
    Program {
        /// The tracepoint.
        tracepoint: &'static str,
        /// What the kernel said to the second try.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// The runtime's stream is refused, or broke.
    #[error("no stream of events")]
    Stream {
        /// What the runtime said.
        #[source]
        source: RuntimeError,
    },
    /// The runtime closed its stream.
    #[error("the runtime closed its stream of events")]
    StreamEnded,
    /// The kernel refuses pidfds.
    #[error("{call} failed for a container's first process")]
    Pidfd {
        /// The kernel request.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// More processes than may be watched.
    #[error("{max} processes are watched already")]
    TooManyProcesses {
        /// The limit.
        max: usize,
    },
    /// The runtime was asked for a container's first process, and refused.
    #[error("the first process is not known")]
    FirstProcess {
        /// What the runtime said.
        #[source]
        source: RuntimeError,
    },
    /// The runtime does not answer for one container.
    #[error("the runtime did not tell the first process within {limit_s} s")]
    RuntimeHangs {
        /// How long it was waited for.
        limit_s: u64,
    },
    /// The runtime does not tell a container's first process, or it is another's by now.
    #[error("the runtime does not tell the first process")]
    Untold,
    /// The runtime was asked who it is, and did not answer.
    #[error("the runtime does not answer")]
    NoAnswer {
        /// What the runtime said.
        #[source]
        source: RuntimeError,
    },
    /// The runtime was asked who it is, and is silent.
    #[error("the runtime did not answer within {limit_s} s")]
    Silent {
        /// How long it was waited for.
        limit_s: u64,
    },
    /// Process ids that the runtime tells mean other processes here.
    #[error("the runtime counts processes in another pid namespace")]
    OtherPidNamespace,
    /// The runtime is older than its stream of events.
    #[error("containerd {version} has no stream of events")]
    NoStreamYet {
        /// The runtime's version.
        version: String,
    },
    /// The thread that reads the ring is gone.
    #[error("the thread that reads the event ring is gone")]
    RingLost,
    /// The ring cannot be waited for.
    #[error("{call} failed for the event ring")]
    Ring {
        /// The kernel request.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl PlegError {
    /// The message with those of all causes below it.
    pub fn with_causes(&self) -> String {
        let mut words = self.to_string();
        for cause in std::iter::successors(self.source(), |&error| error.source()) {
            words.push_str(": ");
            words.push_str(&cause.to_string());
        }
        words
    }
}
