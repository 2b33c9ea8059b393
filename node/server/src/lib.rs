//! The node's own server: what the API server, and people with the right to, ask a node directly.
//!
//! ```text
//! server      TLS, one task a connection        access     who asks, and may it?
//! route       path ▶ what is asked              answer     responses and refusals
//! pods        /pods, /runningpods               container  which container is meant (pure)
//! logs        /containerLogs                    streams    /exec, /attach, /portForward
//! ```
//!
//! Streams are the runtime's own: the node asks it for a place to connect to, and passes bytes.
//! Paths and words: `pkg/kubelet/server/server.go` of Kubernetes.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod container;
mod identity;
mod logs;
mod pods;
mod route;
mod server;
mod streams;

pub use access::reviews::{ControlPlaneAddress, Reviews, ReviewsError};
pub use identity::{Identity, IdentityError};
pub use server::{NodeServer, ServerDoors, ServerError, ServerOptions};
