//! Finds a node for each pod.
//!
//! ```text
//! pods, nodes (informers) ─▶ scheduler: one loop, owner of queue and cache
//!                              queue.pop → schedule_one(snapshot, pod), pure
//!                                ├─ Placement → cache.assume → bind (a task of its own) ─▶ Api
//!                                └─ FitError  → queue (unschedulable), condition and event
//! ```
//!
//! No timer lies between a pod's watch event and its binding.
#![forbid(unsafe_code)]

mod bind;
mod cache;
mod filter;
pub mod framework;
mod node_info;
mod profile;
mod queue;
mod resources;
mod schedule_one;
mod scheduler;
mod score;
#[cfg(test)]
mod tests;
mod unschedulable;
mod volumes;

pub use bind::BindError;
pub use node_info::{NodeInfo, Snapshot};
pub use profile::Profile;
pub use resources::Resources;
pub use schedule_one::{FitError, Placement, schedule_one};
pub use scheduler::run;
