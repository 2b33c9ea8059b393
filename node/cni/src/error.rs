//! What can go wrong with a pod's network, and how the CNI specification says it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use nix::errno::Errno;
use serde::Serialize;
use swiftlet_sys::netns::NetnsError;

use crate::ipam::requested::RequestedError;

/// Error codes of the CNI specification, and from 100 our own.
pub mod code {
    /// The conf's `cniVersion` is not spoken.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The container (its namespace) does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A necessary environment variable is missing or wrong.
    pub const ENVIRONMENT: u32 = 4;
    /// Input or output failed.
    pub const IO: u32 = 5;
    /// The conf is no JSON or has a wrong type in it.
    pub const DECODE: u32 = 6;
    /// The conf asks for something that is wrong or not served.
    pub const INVALID_CONF: u32 = 7;
    /// Nothing is wrong for good: try again.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// The kernel refused a step.
    pub const KERNEL: u32 = 100;
    /// The bridge belongs to another subnet.
    pub const BRIDGE_TAKEN: u32 = 101;
    /// No address is left.
    pub const EXHAUSTED: u32 = 102;
    /// A host port is another container's.
    pub const HOST_PORT_TAKEN: u32 = 105;
    /// The container's interface has an address already.
    pub const ALREADY_ATTACHED: u32 = 103;
    /// CHECK found a difference.
    pub const CHECK_FAILED: u32 = 104;
    /// An address that was asked for cannot be had.
    pub const REQUESTED_ADDRESS: u32 = 106;
    /// The bridge has no port left.
    pub const BRIDGE_FULL: u32 = 107;
}

/// Why the network of a pod could not be made, checked or taken away.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// An environment variable is missing or wrong.
    #[error("{variable} {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The conf cannot be read.
    #[error("cannot read the network configuration")]
    Decode(#[source] serde_json::Error),
    /// A field of the conf cannot be read.
    #[error("cannot read the network configuration's field {field:?}")]
    Field {
        /// Path of the field.
        field: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// A field of the conf is wrong or not served.
    #[error("network configuration field {field:?}: {reason}")]
    Conf {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The conf's version is not spoken.
    #[error("cniVersion {0:?} is not supported: use 0.3.0, 0.3.1, 0.4.0, 1.0.0 or 1.1.0")]
    Version(String),
    /// The pod's namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The kernel refused one step.
    #[error("cannot {step}")]
    Kernel {
        /// The step, in words.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// The kernel's answer was not understood.
    #[error("unexpected netlink answer to: {step}")]
    Answer {
        /// The step, in words.
        step: &'static str,
    },
    /// The bridge exists and belongs to another subnet.
    #[error("bridge {bridge} has the address {found}, but the network needs {wanted}")]
    BridgeTaken {
        /// Name of the bridge.
        bridge: String,
        /// Its address.
        found: IpNet,
        /// The address that this network needs there.
        wanted: IpNet,
    },
    /// A link with the bridge's name exists and is no bridge.
    #[error("{0} exists and is not a bridge")]
    NotABridge(String),
    /// The bridge has as many interfaces as the kernel allows.
    #[error("bridge {bridge} is full: a bridge has at most {ports_max} ports, so set \"bridges\"")]
    BridgeFull {
        /// Name of the bridge.
        bridge: String,
        /// The kernel's limit.
        ports_max: usize,
    },
    /// Every address is taken.
    #[error("no IP addresses available in range set: {0}")]
    Exhausted(String),
    /// An address that was asked for cannot be had.
    #[error(transparent)]
    Requested(#[from] RequestedError),
    /// The container's interface has an address already.
    #[error("{address} has been allocated to {container_id}, duplicate allocation is not allowed")]
    AlreadyAttached {
        /// The container.
        container_id: String,
        /// Its address.
        address: IpAddr,
    },
    /// A host port is another container's.
    #[error("host port {port} is in use by container {container_id}")]
    HostPortTaken {
        /// Address, port and protocol.
        port: String,
        /// Who has it.
        container_id: String,
    },
    /// A file of the address store, or a sysctl.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried: read, write, remove, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The listener.
    #[error("cannot listen on {path}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// CHECK found a difference.
    #[error("check of container {container_id} failed: {reason}")]
    Check {
        /// The container.
        container_id: String,
        /// What differs.
        reason: String,
    },
    /// The request took too long.
    #[error("not finished within {limit_ms} ms; undone")]
    Deadline {
        /// The limit.
        limit_ms: u128,
    },
    /// Several things failed while cleaning up; all others were done.
    #[error("cleaning up failed in {} places, first: {}", .0.len(), display_first(.0))]
    Several(Vec<NetworkError>),
    /// A step failed, and so did something while it was undone.
    #[error("{cause} (and undoing it failed: {undo})")]
    NotUndone {
        /// The step's failure.
        #[source]
        cause: Box<NetworkError>,
        /// What is left behind.
        undo: Box<NetworkError>,
    },
}

/// The error object that a CNI plugin prints.
#[derive(Debug, Serialize)]
pub struct CniError {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    code: u32,
    msg: String,
    details: String,
}

impl NetworkError {
    /// The error's number in the CNI specification.
    pub fn code(&self) -> u32 {
        match self {
            Self::Environment { .. } => code::ENVIRONMENT,
            Self::Decode(_) | Self::Field { .. } => code::DECODE,
            Self::Conf { .. } => code::INVALID_CONF,
            Self::Version(_) => code::INCOMPATIBLE_VERSION,
            Self::Netns(NetnsError::Open { .. }) => code::UNKNOWN_CONTAINER,
            Self::Netns(_) | Self::Kernel { .. } | Self::Answer { .. } => code::KERNEL,
            Self::BridgeTaken { .. } | Self::NotABridge(_) => code::BRIDGE_TAKEN,
            Self::BridgeFull { .. } => code::BRIDGE_FULL,
            Self::Exhausted(_) => code::EXHAUSTED,
            Self::Requested(_) => code::REQUESTED_ADDRESS,
            Self::AlreadyAttached { .. } => code::ALREADY_ATTACHED,
            Self::HostPortTaken { .. } => code::HOST_PORT_TAKEN,
            Self::File { .. } | Self::Listen { .. } => code::IO,
            Self::Check { .. } => code::CHECK_FAILED,
            Self::Deadline { .. } => code::TRY_AGAIN_LATER,
            Self::Several(errors) => errors.first().map_or(code::KERNEL, Self::code),
            Self::NotUndone { cause, .. } => cause.code(),
        }
    }

    /// The object to print, in the conf's version.
    pub(crate) fn to_cni(&self, cni_version: &str) -> CniError {
        // containerd prints the message alone, so the cause belongs into it.
        let mut msg = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            msg.push_str(": ");
            msg.push_str(&cause.to_string());
            source = cause.source();
        }
        CniError {
            cni_version: cni_version.to_owned(),
            code: self.code(),
            msg,
            details: String::new(),
        }
    }

    /// Wraps what was collected while cleaning up.
    pub(crate) fn collected(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    /// This failure, together with the outcome of undoing its step.
    pub(crate) fn after_undo(self, undo: Result<(), Self>) -> Self {
        match undo {
            Ok(()) => self,
            Err(undo) => Self::NotUndone {
                cause: Box::new(self),
                undo: Box::new(undo),
            },
        }
    }
}

/// The error of a file that could not be read, written or removed.
pub(crate) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> NetworkError {
    let path = path.to_path_buf();
    move |source| NetworkError::File {
        action,
        path,
        source,
    }
}

fn display_first(errors: &[NetworkError]) -> String {
    errors.first().map(ToString::to_string).unwrap_or_default()
}

impl std::fmt::Display for CniError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (code {})", self.msg, self.code)
    }
}
