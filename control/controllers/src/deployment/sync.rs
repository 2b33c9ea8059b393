//! One pass over a deployment.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use swiftlet_client::recorder::EventType;
use swiftlet_client::{Object, ObjectKey};

use super::conditions::{self, PROGRESSING, Verdict};
use super::recreate::{self, Step};
use super::sets::Sets;
use super::{Controller, rolling, scale, selector_of, status, strategy};
use crate::claim;
use crate::error::ControllerError;
use crate::reconcile::Again;

impl Controller {
    pub(super) async fn sync(&self, key: &ObjectKey) -> Result<Again, ControllerError> {
        let Some(deployment) = self.stores.deployments.get(key) else {
            return Ok(None);
        };
        let selector = selector_of(&deployment)?;
        if selector.is_everything() {
            let message =
                "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder
                .record(&*deployment, EventType::Warning, "SelectingAll", message);
            return Ok(None);
        }
        let claims = claim::decide(
            &*deployment,
            &selector,
            &self.stores.replica_sets.snapshot(),
        );
        let owned = claim::carry_out(&self.client, &*deployment, claims).await?;
        let mut sets = Sets::sort(&deployment, owned);
        if deployment.is_terminating() {
            let status = status::compute(&deployment, &sets, self.clock.now());
            self.write_status(&deployment, status).await?;
            return Ok(None);
        }
        let deployment = self.note_pause(deployment).await?;
        if is_paused(&deployment) || scale::is_scaling(&deployment, &sets) {
            return self.sync_scale(deployment, sets).await;
        }
        if strategy::is_recreate(&deployment) {
            return self.roll_recreate(deployment, sets).await;
        }
        let deployment = self.sync_new_set(deployment, &mut sets, true).await?;
        let plan = rolling::plan(&deployment, &sets);
        self.scale(&deployment, &mut sets, &plan).await?;
        self.finish(&deployment, &sets).await
    }

    async fn sync_scale(
        &self,
        deployment: Arc<Deployment>,
        mut sets: Sets,
    ) -> Result<Again, ControllerError> {
        let deployment = self.sync_new_set(deployment, &mut sets, false).await?;
        let plan = scale::plan(&deployment, &sets);
        self.scale(&deployment, &mut sets, &plan).await?;
        // Sets whose number stays must still learn the deployment's, or this pass would come again.
        let unchanged: Vec<_> = sets
            .all()
            .filter(|set| crate::replica_set::wanted_replicas(set) > 0)
            .map(|set| super::sets::Scale::new(set, crate::replica_set::wanted_replicas(set)))
            .collect();
        self.scale(&deployment, &mut sets, &unchanged).await?;
        let status = status::compute(&deployment, &sets, self.clock.now());
        self.write_status(&deployment, status).await?;
        Ok(None)
    }

    async fn roll_recreate(
        &self,
        deployment: Arc<Deployment>,
        mut sets: Sets,
    ) -> Result<Again, ControllerError> {
        let mut deployment = self.sync_new_set(deployment, &mut sets, false).await?;
        match recreate::plan(&sets, recreate::old_pods(&self.stores, &sets)) {
            Step::Stop(stop) => {
                self.scale(&deployment, &mut sets, &stop).await?;
            }
            Step::Wait => (),
            Step::Start => {
                deployment = self.sync_new_set(deployment, &mut sets, true).await?;
                let start = recreate::start(&deployment, &sets);
                self.scale(&deployment, &mut sets, &start).await?;
            }
        }
        self.finish(&deployment, &sets).await
    }

    /// Status with progress, and the end of history when the roll-out is complete.
    async fn finish(&self, deployment: &Deployment, sets: &Sets) -> Result<Again, ControllerError> {
        let (status, again) = status::with_progress(deployment, sets, self.clock.now());
        let complete = status::is_complete(deployment, &status);
        self.write_status(deployment, status).await?;
        if complete {
            self.clean_up(deployment, sets).await?;
        }
        Ok(again)
    }

    async fn write_status(
        &self,
        deployment: &Deployment,
        status: DeploymentStatus,
    ) -> Result<(), ControllerError> {
        if deployment.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut updated = deployment.clone();
        updated.status = Some(status);
        self.client.update_status(&updated).await?;
        Ok(())
    }

    /// A pause must not count against the progress deadline.
    async fn note_pause(
        &self,
        deployment: Arc<Deployment>,
    ) -> Result<Arc<Deployment>, ControllerError> {
        if status::deadline(&deployment).is_none() {
            return Ok(deployment);
        }
        let mut conditions = conditions::of(&deployment);
        let known = conditions::find(&conditions, PROGRESSING);
        let reason = known
            .and_then(|known| known.reason.as_deref())
            .unwrap_or_default();
        let verdict = match (is_paused(&deployment), reason) {
            // What has timed out stays so until the roll-out moves.
            (true, reason)
                if !["DeploymentPaused", "ProgressDeadlineExceeded"].contains(&reason) =>
            {
                Verdict::new("Unknown", "DeploymentPaused", "Deployment is paused")
            }
            (false, "DeploymentPaused") => {
                Verdict::new("Unknown", "DeploymentResumed", "Deployment is resumed")
            }
            _ => return Ok(deployment),
        };
        conditions::set(
            &mut conditions,
            PROGRESSING,
            verdict,
            self.clock.now(),
            false,
        );
        let mut updated = (*deployment).clone();
        updated.status.get_or_insert_default().conditions = Some(conditions);
        Ok(Arc::new(self.client.update_status(&updated).await?))
    }
}

fn is_paused(deployment: &Deployment) -> bool {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.paused)
        .unwrap_or(false)
}
