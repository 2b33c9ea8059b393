//! Carries scale decisions out, and removes what history no longer needs.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use swiftlet_client::Object;
use swiftlet_client::client::delete_exactly;
use swiftlet_client::recorder::EventType;

use super::sets::{Scale, Sets, replicas};
use super::{Controller, annotations};
use crate::error::ControllerError;
use crate::replica_set::wanted_replicas as set_replicas;

impl Controller {
    /// Scales sets; `sets` is brought up to date. Answers whether any number changed.
    pub(super) async fn scale(
        &self,
        deployment: &Deployment,
        sets: &mut Sets,
        scales: &[Scale],
    ) -> Result<bool, ControllerError> {
        let mut any = false;
        for scale in scales {
            let before = set_replicas(&scale.set);
            let mut set = (*scale.set).clone();
            annotations::set_replicas(&mut set.metadata, deployment);
            set.spec.get_or_insert_default().replicas = Some(scale.replicas);
            if set == *scale.set {
                continue;
            }
            let stored = Arc::new(self.client.update(&set).await?);
            if before != scale.replicas {
                any = true;
                self.report(deployment, &set, before, scale.replicas);
            }
            replace(sets, &stored);
        }
        Ok(any)
    }

    pub(super) fn report(&self, deployment: &Deployment, set: &ReplicaSet, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!(
            "Scaled {direction} replica set {} from {from} to {to}",
            set.name()
        );
        self.recorder
            .record(deployment, EventType::Normal, "ScalingReplicaSet", &message);
    }

    /// Deletes old sets without pods, beyond `revisionHistoryLimit`, those of the lowest revision
    /// first.
    pub(super) async fn clean_up(
        &self,
        deployment: &Deployment,
        sets: &Sets,
    ) -> Result<(), ControllerError> {
        let limit = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
            return Ok(());
        };
        let mut old: Vec<_> = sets
            .old
            .iter()
            .filter(|set| !set.is_terminating())
            .collect();
        old.sort_by_key(|set| annotations::revision(&set.metadata));
        let surplus = old.len().saturating_sub(limit);
        for set in old.into_iter().take(surplus).filter(|set| is_spent(set)) {
            match self
                .client
                .delete::<ReplicaSet>(&set.key(), delete_exactly(&**set))
                .await
            {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => (),
            }
        }
        Ok(())
    }
}

fn is_spent(set: &ReplicaSet) -> bool {
    let observed = set
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    replicas(set) == 0 && set_replicas(set) == 0 && observed >= set.metadata.generation
}

fn replace(sets: &mut Sets, stored: &Arc<ReplicaSet>) {
    for set in sets.new.iter_mut().chain(&mut sets.old) {
        if set.uid() == stored.uid() {
            *set = Arc::clone(stored);
        }
    }
}
