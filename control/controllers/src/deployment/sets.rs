//! The replica sets of a deployment, as numbers for the plans.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use swiftlet_client::Object;

use super::hash::same_template;
use crate::replica_set::wanted_replicas;

/// The sets, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    /// The set of the present template.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// The sets of past templates.
    pub(super) old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    /// Finds the new set: the oldest one with the deployment's template.
    pub(super) fn sort(deployment: &Deployment, mut sets: Vec<Arc<ReplicaSet>>) -> Self {
        sets.sort_by(|a, b| age(a).cmp(&age(b)));
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let is_new = |set: &Arc<ReplicaSet>| {
            let own = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            own.zip(template)
                .is_some_and(|(own, wanted)| same_template(own, wanted))
        };
        let new = sets.iter().position(is_new).map(|index| sets.remove(index));
        Self { new, old: sets }
    }

    /// All sets.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.new.iter().chain(&self.old)
    }

    /// Old sets that want pods.
    pub(super) fn active_old(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().filter(|set| wanted_replicas(set) > 0)
    }

    /// How many pods all sets want.
    pub(super) fn wanted(&self) -> i32 {
        self.all().map(|set| wanted_replicas(set)).sum()
    }

    /// How many pods of all sets are available.
    pub(super) fn available(&self) -> i32 {
        self.all().map(|set| available(set)).sum()
    }
}

/// Available pods of a set.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

/// Pods of a set.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Sorts by age, then by name.
pub(super) fn age(set: &ReplicaSet) -> (Option<jiff::Timestamp>, &str) {
    (
        set.metadata.creation_timestamp.as_ref().map(|time| time.0),
        set.name(),
    )
}

/// A decision about one set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// The set.
    pub(super) set: Arc<ReplicaSet>,
    /// How many pods it shall want.
    pub(super) replicas: i32,
}

impl Scale {
    pub(super) fn new(set: &Arc<ReplicaSet>, replicas: i32) -> Self {
        Self {
            set: Arc::clone(set),
            replicas: replicas.max(0),
        }
    }
}
