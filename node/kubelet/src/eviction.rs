//! What the node does when it runs short of memory, disk or process ids.
//!
//! ```text
//! NodeStats ─▶ observe ─▶ watchdog (pure): which thresholds are met, since when
//!                            │
//!                            ├─▶ node conditions, for the scheduler and for admission
//!                            └─▶ reclaim: dead containers and unused images first,
//!                                then rank (pure) and end one pod
//! ```
//!
//! What the node has left is looked at every ten seconds, and at once when the kernel says that
//! memory gets scarce. What single pods use is read only when a threshold is met, and their files
//! are counted beside that (`counts.rs`). Source of rules and words: `pkg/kubelet/eviction` of
//! Kubernetes.

mod amounts;
mod counts;
mod dead;
mod limits;
mod manager;
mod messages;
mod observe;
mod rank;
mod thresholds;
mod watchdog;

pub(crate) use dead::Dead;
pub(crate) use manager::run;
pub(crate) use messages::disruption_target;
pub use thresholds::{EvictionOptions, EvictionTexts, Threshold, ThresholdError, Value};
pub use watchdog::{Observations, Signal};
