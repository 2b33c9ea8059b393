//! Pods of a node whose object was deleted: nobody is left who could end them gracefully.

use k8s_openapi::api::core::v1::{Node, Pod};
use swiftlet_client::api::DeleteParameters;
use swiftlet_client::client::delete_exactly;
use swiftlet_client::{Object, ObjectKey};
use tracing::info;

use super::{Controller, GRACE_PERIOD};
use crate::error::ControllerError;
use crate::informers::NODE;
use crate::reconcile::Again;

impl Controller {
    /// Removes the pods of a node that has been absent for long enough to have come back: an agent
    /// that lives registers again with its next lease.
    pub(super) async fn remove_orphans(&self, key: &ObjectKey) -> Result<Again, ControllerError> {
        let deleted = self.deleted().get(&key.name).copied();
        let Some(deleted) = deleted else {
            return Ok(None);
        };
        let left = GRACE_PERIOD.saturating_sub(deleted.elapsed());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        // The informer may be behind; nothing is removed by force on old knowledge.
        match self.client.get::<Node>("", &key.name).await {
            Ok(_) => return Ok(None),
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error.into()),
        }
        for pod in self.stores.pods.snapshot().by_index(NODE, &key.name) {
            info!(node = key.name, pod = %pod.key(), "removed: its node was deleted");
            let parameters = DeleteParameters {
                grace_period_seconds: Some(0),
                ..delete_exactly(&**pod)
            };
            match self.client.delete::<Pod>(&pod.key(), parameters).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    return Err(error.into());
                }
                _ => (),
            }
        }
        self.deleted().remove(&key.name);
        Ok(None)
    }
}
