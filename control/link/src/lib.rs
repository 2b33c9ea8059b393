//! NodeLink's server: pods to nodes, statuses back.
//!
//! ```text
//!  API watch (pods, configmaps, secrets) ──► feed: one task, one owner of the index by node
//!                                              │ snapshot, changes: a bounded queue per node
//!  node ══ NodeMessage ══► session: reports ──►│──► API (status, delete, lease, events)
//!       ◄═ ControlMessage ═══════ queue ◄──────┘
//! ```
//!
//! The link is an ordinary client of the API: it sees the [`Api`](swiftlet_client::api::Api) door
//! alone.
#![forbid(unsafe_code)]

mod feed;
mod objects;
mod references;
mod reports;
pub mod server;
