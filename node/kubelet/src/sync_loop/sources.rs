//! The loop's part for pods that do not come from the API, or came from it in an earlier run.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::PodKey;
use swiftlet_model::sources::{Source, SourcePods};

use super::SyncLoop;
use crate::config::PodUpdate;
use crate::last_known::Ripe;
use crate::mirror;
use crate::pod_manager::{FullName, full_name};

impl SyncLoop {
    pub(super) fn take_source(&mut self, list: SourcePods) {
        let updates = self.config.take_source(list, &mut self.pods);
        // First the view: what a worker publishes goes to the mirror pod.
        self.show_mirrors();
        for update in updates {
            self.update(update);
        }
    }

    /// Tells the keeper of mirror pods what it has to compare.
    pub(super) fn show_mirrors(&self) {
        let connected = self.config.is_control_plane_synced();
        let view = mirror::View::of(&self.pods, connected, self.config.is_synced());
        if !view.is_empty() || !self.mirrors.borrow().is_empty() {
            self.mirrors.send_replace(view);
        }
    }

    pub(super) fn last_known(&mut self, ripe: Ripe) {
        match ripe {
            Ripe::Loaded(pods) => {
                let updates = self.config.take_last_known(pods, &mut self.pods);
                if !updates.is_empty() {
                    let pods = updates.len();
                    tracing::warn!(pods, "no control plane: its last known pods are used");
                }
                for update in updates {
                    self.update(update);
                }
            }
            Ripe::SaveDue => {
                let pods = self.pods.of_source(Source::ControlPlane);
                self.last_known.save(pods);
            }
        }
    }

    pub(super) fn is_name_taken(&self, pod: &Pod) -> bool {
        let name = full_name(pod);
        let mut workers = self.workers.values();
        workers.any(|worker| full_name(&worker.pod) == name)
    }

    /// A static pod that waited for the end of the one before it.
    pub(super) fn start_successor(&mut self, name: &FullName) {
        let waits = |pod: &&Arc<Pod>| {
            let uid = PodKey::of(pod).uid;
            full_name(pod) == *name && !self.workers.contains_key(&uid) && !self.done.contains(&uid)
        };
        let waiting = self.pods.statics().find(waits).map(Arc::clone);
        if let Some(pod) = waiting {
            self.update(PodUpdate::Add(pod));
        }
    }
}
