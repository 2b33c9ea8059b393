//! Why the node ends a pod before its time.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodCondition;

/// A pod that the node ends: its phase is `Failed` once its containers are stopped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFailure {
    /// `status.reason`: `Evicted`, `DeadlineExceeded`, `Terminated`, ….
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// `DisruptionTarget`, where it is shown.
    pub condition: Option<PodCondition>,
    /// How long its containers have to end; `None` for the pod's own grace period.
    pub grace: Option<Duration>,
}
