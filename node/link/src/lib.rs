//! The [`ControlPlane`](swiftlet_model::control_plane::ControlPlane) door, spoken over NodeLink.
//!
//! One task owns the connection: it connects, says hello, resends what the control plane must know
//! after a reconnect (the Node, the interests) and turns messages into events. Callers hand it
//! requests and wait for the acknowledgement; a request that was in flight when the connection
//! broke fails with
//! [`Disconnected`](swiftlet_model::control_plane::ControlPlaneError::Disconnected) and is the
//! caller's to repeat.
//!
//! ```text
//!  Disconnected ──connect──► Open ──Hello──► Attached ──end──► Disconnected (back-off 20 ms … 2 s)
//! ```
#![forbid(unsafe_code)]

mod connection;
mod data;
mod handle;
pub mod kubeconfig;
mod transport;

pub use handle::{NodeLink, NodeLinkOptions};
