//! How many pods to create, or which to delete: pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;

use super::{rank, wanted_replicas};

/// Most pods that one pass creates or deletes (Kubernetes' `BurstReplicas`).
pub(super) const BURST_MAX: usize = 500;

/// What one pass must do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// As many as wanted.
    Nothing,
    /// Too few.
    Create(usize),
    /// Too many: these, the least missed first.
    Delete(Vec<Arc<Pod>>),
}

/// Compares what is wanted with the active pods.
pub(super) fn plan(set: &ReplicaSet, active: &[Arc<Pod>]) -> Plan {
    let wanted = usize::try_from(wanted_replicas(set)).unwrap_or(0);
    if active.len() < wanted {
        return Plan::Create((wanted - active.len()).min(BURST_MAX));
    }
    let surplus = (active.len() - wanted).min(BURST_MAX);
    if surplus == 0 {
        return Plan::Nothing;
    }
    let mut ranked = active.to_vec();
    rank::sort(&mut ranked);
    ranked.truncate(surplus);
    Plan::Delete(ranked)
}

#[cfg(test)]
mod tests;
