//! Startup, liveness and readiness probes. Rules: `pkg/kubelet/prober` of Kubernetes.
//!
//! ```text
//! what runs ─▶ schedule: which probe is due (pure) ─▶ check: one call ─▶ thresholds (pure)
//!                                                                            │
//!                          pod worker: actions, status ◀── results ◀─────────┘
//! ```
//!
//! The pod's worker owns all of it: a probe is one of the worker's calls, and its next time one of
//! the times that wake the worker. So nothing polls, and no probe waits for another one.

pub(crate) mod check;
pub mod results;
pub(crate) mod schedule;
pub(crate) mod thresholds;
