//! The controllers: each brings what is nearer to what shall be.
//!
//! ```text
//! informers (shared) ─▶ per controller: events → keys → queue → workers → reconcile(key) ─▶ Api
//! ```
//!
//! A reconcile reads the informers' snapshots, decides in a pure function, and carries the decision
//! out. Nothing polls: a key is worked on because something changed, because a moment came that the
//! last pass named, or because the last pass failed.
#![forbid(unsafe_code)]

mod claim;
mod clock;
mod deployment;
mod error;
mod event_ttl;
mod garbage_collector;
mod informers;
mod manager;
mod namespace;
mod node_lifecycle;
mod owner;
mod persistent_volume;
mod pod_state;
mod reconcile;
mod replica_set;
mod root_ca;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use error::ControllerError;
pub use manager::{Options, run};
