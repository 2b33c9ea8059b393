//! Scaling while nothing is rolled out (or the roll-out is paused): pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::annotations::{desired_replicas, max_replicas};
use super::sets::{Scale, Sets, age, available};
use super::strategy::{Limits, is_recreate};
use super::wanted_replicas;
use crate::replica_set::wanted_replicas as set_replicas;

/// Whether the number of replicas was changed since the sets were last scaled.
pub(super) fn is_scaling(deployment: &Deployment, sets: &Sets) -> bool {
    let wanted = wanted_replicas(deployment);
    let active = sets.all().filter(|set| set_replicas(set) > 0);
    active
        .filter_map(|set| desired_replicas(set))
        .any(|desired| desired != wanted)
}

/// Scales the one active set; or ends old sets beside a complete new one; or, amid a roll-out,
/// shares the difference out in proportion, so that a bad new template does not take it all.
pub(super) fn plan(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    let wanted = wanted_replicas(deployment);
    if let Some(only) = active_or_latest(sets) {
        return vec![Scale::new(only, wanted)];
    }
    if sets
        .new
        .as_ref()
        .is_some_and(|new| is_saturated(deployment, new))
    {
        return sets.active_old().map(|set| Scale::new(set, 0)).collect();
    }
    if is_recreate(deployment) {
        return Vec::new();
    }
    in_proportion(deployment, sets)
}

/// The only active set, or the newest if none is active; `None` if several are.
fn active_or_latest(sets: &Sets) -> Option<&Arc<ReplicaSet>> {
    let mut active = sets.all().filter(|set| set_replicas(set) > 0);
    match (active.next(), active.next()) {
        (None, _) => sets.new.as_ref().or(sets.old.last()),
        (only, None) => only,
        (_, Some(_)) => None,
    }
}

fn is_saturated(deployment: &Deployment, new: &ReplicaSet) -> bool {
    let wanted = wanted_replicas(deployment);
    set_replicas(new) == wanted && desired_replicas(new) == Some(wanted) && available(new) == wanted
}

fn in_proportion(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    let wanted = wanted_replicas(deployment);
    let allowed = match wanted {
        0 => 0,
        _ => wanted.saturating_add(Limits::of(deployment).surge),
    };
    let mut active: Vec<_> = sets.all().filter(|set| set_replicas(set) > 0).collect();
    let total: i32 = active.iter().map(|set| set_replicas(set)).sum();
    let difference = allowed - total;
    // The largest set takes what rounding leaves: when growing the newest of them, else the oldest.
    active.sort_by(|a, b| {
        let by_age = if difference > 0 {
            age(b).cmp(&age(a))
        } else {
            age(a).cmp(&age(b))
        };
        set_replicas(b).cmp(&set_replicas(a)).then(by_age)
    });
    let mut given = 0;
    let mut scales = Vec::new();
    for set in &active {
        let share = share(set, wanted, allowed, difference - given);
        given += share;
        scales.push(Scale::new(set, set_replicas(set) + share));
    }
    if let Some(largest) = scales.first_mut() {
        largest.replicas = (largest.replicas + difference - given).max(0);
    }
    scales
}

/// A set's part of the difference, never more than what is left of it.
fn share(set: &ReplicaSet, wanted: i32, allowed: i32, left: i32) -> i32 {
    let size = set_replicas(set);
    if left == 0 || size == 0 {
        return 0;
    }
    if wanted == 0 {
        return -size;
    }
    let before = i64::from(
        max_replicas(set)
            .filter(|most| *most > 0)
            .unwrap_or(allowed),
    );
    // Rounded to the nearest.
    let scaled = (i64::from(size) * i64::from(allowed) * 2 + before) / (before * 2);
    let share = i32::try_from(scaled).unwrap_or(i32::MAX) - size;
    if left > 0 {
        share.clamp(0, left)
    } else {
        share.clamp(left, 0)
    }
}

#[cfg(test)]
mod tests;
