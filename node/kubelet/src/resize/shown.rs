//! How a resize looks in the pod's status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

use crate::resize::{Pending, Resize};
use crate::status::containers::api_time;

/// The spec asks for what is not promised.
const PENDING: &str = "PodResizePending";
/// What is promised is not given yet.
const IN_PROGRESS: &str = "PodResizeInProgress";

/// What the status is changed by.
pub(crate) struct Shown<'a> {
    pub(crate) resize: &'a Resize,
    pub(crate) previous: &'a PodStatus,
    pub(crate) generation: Option<i64>,
    pub(crate) now: Timestamp,
}

impl Shown<'_> {
    /// Puts in what containers really have, and the two conditions where they hold.
    pub(crate) fn put_in(&self, status: &mut PodStatus) {
        let mains = status.container_statuses.iter_mut().flatten();
        let all = mains.chain(status.init_container_statuses.iter_mut().flatten());
        for container in all {
            if let Some(actual) = self.resize.actual.get(&container.name) {
                container.resources = Some(actual.clone());
            }
        }
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|one| one.type_ != PENDING && one.type_ != IN_PROGRESS);
        let pending = self.resize.pending.as_ref();
        conditions.extend(pending.map(|Pending { reason, message }| {
            self.condition(PENDING, Some((*reason).to_owned()), Some(message.clone()))
        }));
        if !self.resize.is_done() {
            let reason = self.resize.error.as_ref().map(|_| "Error".to_owned());
            conditions.push(self.condition(IN_PROGRESS, reason, self.resize.error.clone()));
        }
    }

    fn condition(
        &self,
        name: &str,
        reason: Option<String>,
        message: Option<String>,
    ) -> PodCondition {
        let mut before = self.previous.conditions.iter().flatten();
        let before = before.find(|one| one.type_ == name);
        let since = before.and_then(|one| one.last_transition_time.clone());
        PodCondition {
            type_: name.to_owned(),
            status: "True".to_owned(),
            reason,
            message,
            observed_generation: self.generation,
            last_transition_time: Some(since.unwrap_or_else(|| api_time(self.now))),
            ..PodCondition::default()
        }
    }
}
