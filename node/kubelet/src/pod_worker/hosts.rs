//! The pod's `/etc/hosts`. A container can be made before the pod has its address, and while it is
//! made the file is written; no container starts before that.

use std::sync::Arc;
use std::time::Instant;

use swiftlet_model::events::{EventKind, FAILED_MOUNT};
use swiftlet_model::volumes::VolumeError;

use crate::kuberuntime::actions::ready_sandbox;
use crate::kuberuntime::backoff;
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::places;
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;

impl Worker {
    /// Writes the file once the addresses are known, and again when they are others.
    pub(super) fn hosts_pass(&mut self, now: Instant) {
        if ready_sandbox(&self.view.pod).is_none() || self.hosts_are_written() {
            return;
        }
        let ips = self.pod_ips();
        let is_known = !ips.is_empty() || host_network(self.pod());
        if is_known && self.lanes.is_free(&Lane::Hosts, now) {
            let call = places::hosts(&self.shared, Arc::clone(self.pod()), ips);
            self.lanes.launch(Lane::Hosts, call);
        }
    }

    /// Whether containers may start as far as the file is concerned.
    pub(super) fn hosts_are_written(&self) -> bool {
        self.view.hosts.as_ref() == Some(&self.pod_ips())
    }

    pub(super) fn hosts_answer(
        &mut self,
        ips: Vec<String>,
        result: Result<(), VolumeError>,
        now: Instant,
    ) {
        match result {
            Ok(()) => self.view.hosts = Some(ips),
            Err(error) => {
                self.tell(None, EventKind::Warning, FAILED_MOUNT, error.to_string());
                tracing::warn!(pod = %self.key, %error, "the table of hosts was not written");
                self.lanes.failed(Lane::Hosts, now, backoff::retry);
            }
        }
    }
}
