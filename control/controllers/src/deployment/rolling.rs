//! Rolling update: one step, pure.
//!
//! Two promises hold in each step: never more pods than wanted plus surge, and never fewer
//! available pods than wanted minus unavailable by a decision of ours.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::sets::{Scale, Sets, available};
use super::strategy::Limits;
use super::wanted_replicas;
use crate::replica_set::wanted_replicas as set_replicas;

/// How many pods the new set may want now: at creation, and in each step.
pub(super) fn new_set_replicas(deployment: &Deployment, sets: &Sets, current: i32) -> i32 {
    let wanted = wanted_replicas(deployment);
    let most = wanted.saturating_add(Limits::of(deployment).surge);
    let room = most - sets.wanted();
    if room <= 0 {
        return current;
    }
    current + room.min((wanted - current).max(0))
}

/// The next step. First the new set, as far as surge allows; if that is done, the old ones, as far
/// as availability allows. Empty: nothing can be done now.
pub(super) fn plan(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    let Some(new) = &sets.new else {
        return Vec::new();
    };
    let (wanted, current) = (wanted_replicas(deployment), set_replicas(new));
    let target = if current > wanted {
        wanted
    } else {
        new_set_replicas(deployment, sets, current)
    };
    if target != current {
        return vec![Scale::new(new, target)];
    }
    shrink_old(deployment, sets, new)
}

fn shrink_old(deployment: &Deployment, sets: &Sets, new: &Arc<ReplicaSet>) -> Vec<Scale> {
    let least = wanted_replicas(deployment) - Limits::of(deployment).unavailable;
    // New pods that are not available yet are needed, so they cannot be what is given up.
    let new_unavailable = (set_replicas(new) - available(new)).max(0);
    let most = sets.wanted() - least - new_unavailable;
    if most <= 0 {
        return Vec::new();
    }
    let mut remaining: Vec<(Arc<ReplicaSet>, i32)> = sets
        .active_old()
        .map(|set| (Arc::clone(set), set_replicas(set)))
        .collect();
    give_up_unhealthy(&mut remaining, most);
    give_up_available(&mut remaining, sets.available() - least);
    remaining
        .iter()
        .filter(|(set, replicas)| *replicas != set_replicas(set))
        .map(|(set, replicas)| Scale::new(set, *replicas))
        .collect()
}

/// Old pods that are not available are no loss.
fn give_up_unhealthy(remaining: &mut [(Arc<ReplicaSet>, i32)], mut most: i32) {
    for (set, replicas) in remaining {
        let unhealthy = (*replicas - available(set)).clamp(0, most);
        *replicas -= unhealthy;
        most -= unhealthy;
    }
}

/// Available old pods go, oldest set first, as far as enough remain.
fn give_up_available(remaining: &mut [(Arc<ReplicaSet>, i32)], mut spare: i32) {
    for (_, replicas) in remaining {
        let given_up = (*replicas).min(spare.max(0));
        *replicas -= given_up;
        spare -= given_up;
    }
}

#[cfg(test)]
mod tests;
