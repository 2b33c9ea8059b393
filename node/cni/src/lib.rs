//! Pod networks: bridge and host-local IPAM in process over netlink, and the shim that containerd
//! runs.
//!
//! ```text
//! containerd ── exec ──▶ swiftlet-cni (shim.rs) ── unix socket (wire.rs) ──▶ shim_server.rs
//!                                                                                │ Request
//!    conf.rs  what is wanted          network.rs  Reserved → Linked → Addressed → Routed
//!    ipam.rs  which address           bridge.rs, network/phases.rs  through netlink.rs
//!    masquerade.rs, host_ports.rs  nftables   result.rs  what containerd is told
//!    mac_spoof.rs, bandwidth.rs  what bounds a pod (network/restrictions.rs), known by mark.rs
//! ```
//!
//! Everything here blocks, on threads of its own: the kernel does a netlink request inside `send`
//! and has the answer ready when it returns, so there is nothing to await.
//!
//! The feature `server` (on by default) is all that runs in the node; without it there is the
//! shim alone, from std and nix.
#![forbid(unsafe_code)]

pub mod shim;
pub mod wire;

#[cfg(feature = "server")]
mod args;
#[cfg(feature = "server")]
mod bandwidth;
#[cfg(feature = "server")]
mod bridge;
#[cfg(feature = "server")]
pub mod conf;
#[cfg(feature = "server")]
pub mod conflist;
#[cfg(feature = "server")]
mod disk;
#[cfg(feature = "server")]
pub mod error;
#[cfg(all(feature = "server", feature = "failpoints"))]
pub mod failpoint;
#[cfg(all(feature = "server", not(feature = "failpoints")))]
mod failpoint;
#[cfg(feature = "server")]
pub mod host_check;
#[cfg(feature = "server")]
mod host_ports;
#[cfg(feature = "server")]
pub mod ipam;
#[cfg(feature = "server")]
mod mac;
#[cfg(feature = "server")]
mod mac_spoof;
#[cfg(feature = "server")]
mod mark;
#[cfg(feature = "server")]
mod masquerade;
#[cfg(feature = "server")]
mod netlink;
#[cfg(feature = "server")]
mod network;
#[cfg(feature = "server")]
pub mod observer;
#[cfg(feature = "server")]
pub mod options;
#[cfg(feature = "server")]
mod previous;
#[cfg(feature = "server")]
pub mod request;
#[cfg(feature = "server")]
pub mod result;
#[cfg(feature = "server")]
pub mod shim_server;
#[cfg(feature = "server")]
mod sysctl;
