//! What is cleared away: old sandboxes and old records.

use swiftlet_model::runtime::{ContainerState, ContainerStatus};

use crate::kuberuntime::actions::{ContainerStop, Decision, PodActions, ready_sandbox};

impl Decision<'_> {
    /// All sandboxes but the one to work in go; what runs in them is stopped before.
    pub(super) fn clear_sandboxes(&self, actions: &mut PodActions) {
        let keep = ready_sandbox(self.observed).map(|sandbox| &sandbox.id);
        for container in &self.observed.containers {
            if Some(&container.sandbox) != keep && !is_over(container) {
                let message = format!("Stopping container {}", container.name);
                actions.stop.push(ContainerStop::of(container, message));
            }
        }
        // Without a sandbox to go on in, the old ones are kept as long as their ends are not known.
        if keep.is_none() && !self.ends_known() {
            return;
        }
        let old = self
            .observed
            .sandboxes
            .iter()
            .filter(|one| Some(&one.id) != keep);
        actions.remove_sandboxes = old.map(|one| one.id.clone()).collect();
    }

    /// The newest record and the one before it stay, for the status and the logs.
    pub(super) fn clear_records(&self, actions: &mut PodActions) {
        for container in &self.observed.containers {
            let newest = self
                .newest(container.name.as_str())
                .map_or(0, |one| one.attempt);
            if is_over(container) && container.attempt + 1 < newest {
                actions.remove.push(container.id.clone());
            }
        }
    }
}

/// Created ones count as over: no process of theirs runs.
pub(super) fn is_over(container: &ContainerStatus) -> bool {
    matches!(
        container.state,
        ContainerState::Exited | ContainerState::Created
    )
}
