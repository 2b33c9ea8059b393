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

    /// Of each container one dead record stays, for the status and the logs, as with kubelet's
    /// `MaxPerPodContainer` of 1: the newest, or the one before the one that lives.
    pub(super) fn clear_records(&self, actions: &mut PodActions) {
        for container in &self.observed.containers {
            let mine = self.observed.containers.iter();
            let mine = mine.filter(|one| one.name == container.name);
            let Some(newest) = mine.max_by_key(|one| one.attempt) else {
                continue;
            };
            // Until it is known how the newest ended, what is shown as the last state may be the
            // one before.
            let dead = newest.state == ContainerState::Exited && newest.exit.is_some();
            let kept = newest.attempt.saturating_sub(u32::from(!dead));
            if is_over(container) && container.attempt < kept {
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
