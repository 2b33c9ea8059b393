//! What the worker remembers of single containers: nothing of it outlives this program, as with
//! kubelet.

use std::collections::BTreeSet;

use swiftlet_model::ids::ContainerId;

/// Marks on containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Their postStart hook is not over.
    pub(super) starting: BTreeSet<ContainerId>,
    /// Their postStart hook has failed.
    pub(super) failed: BTreeSet<ContainerId>,
    /// They were stopped to be started anew.
    pub(super) doomed: BTreeSet<ContainerId>,
}

impl Marks {
    /// Forgets all containers but these.
    pub(super) fn retain(&mut self, held: impl Fn(&ContainerId) -> bool) {
        for marks in [&mut self.starting, &mut self.failed, &mut self.doomed] {
            if !marks.is_empty() {
                marks.retain(&held);
            }
        }
    }
}
