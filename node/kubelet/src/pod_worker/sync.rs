//! The pass over a pod that shall run.

use std::sync::Arc;
use std::time::Instant;

use swiftlet_model::events::{BACK_OFF, EventKind};

use crate::kuberuntime::actions::{BackingOff, compute_pod_actions, ready_sandbox};
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::execute;
use crate::kuberuntime::last_words;
use crate::pod_worker::Worker;
use crate::pod_worker::hooks::POST_START_ERROR;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::Cause;
use crate::pod_worker::view::RUN_ERROR;
use crate::status::containers::Waiting;

impl Worker {
    pub(super) fn sync_pass(&mut self) {
        let now = self.now();
        if self.deadline_pass(now) || !self.query_pass(now) {
            return;
        }
        self.record_pass(now);
        // After `now`: what is left of a wait is then never counted too long.
        let timestamp = self.shared.doors.clock.timestamp();
        self.hook_pass(now);
        let actions = compute_pod_actions(
            &self.order.pod,
            &self.view.pod,
            &self.view.history,
            &self.view.probes,
            timestamp,
        );
        if actions.finished && !self.lanes.is_making() {
            self.view.backing_off.clear();
            // Sidecars that still run have the pod's grace period.
            self.end(Cause::Completed, now + self.grace());
            return;
        }
        self.back_off(&actions.backing_off, now);
        self.cgroup_pass(now);
        self.resize_pass(now);
        if self.view.is_living() {
            // Of a pod that ran before this program was started, the volumes are not known yet.
            self.volumes_pass(now);
        }
        self.clear(&actions, now);
        self.address_pass(now);
        self.hosts_pass(now);
        self.refresh_pass(now);
        if let Some(attempt) = actions.create_sandbox {
            self.make_sandbox(attempt, now);
            self.prefetch(now);
        }
        for start in &actions.start {
            self.start(start, now);
        }
    }

    /// Asks the runtime if that is needed; true if what is known may be acted on.
    pub(super) fn query_pass(&mut self, now: Instant) -> bool {
        if self.lanes.is_busy(&Lane::Query) {
            return false;
        }
        if self.view.known && !self.view.stale {
            return true;
        }
        if self.lanes.may_query() && self.lanes.is_free(&Lane::Query, now) {
            let call = execute::query(&self.shared, self.key.uid.clone());
            // Before the call: what is told while it is in flight may be missing in its answer.
            self.view.stale = false;
            self.lanes.launch(Lane::Query, call);
        }
        false
    }

    /// Asks for the records of containers that have ended.
    pub(super) fn record_pass(&mut self, now: Instant) {
        for id in self.view.records_due(now) {
            let lane = Lane::Record(id.clone());
            if self.lanes.is_free(&lane, now) {
                let words = self.last_words(&id);
                let call = last_words::record(Arc::clone(&self.shared), id, words);
                self.lanes.launch(lane, call);
            }
        }
        // Those that are asked for now are told by their answers.
        self.look.maybe(self.view.record_after(now));
    }

    fn cgroup_pass(&mut self, now: Instant) {
        if self.view.cgroup.is_none() && self.lanes.is_free(&Lane::Cgroup, now) {
            let call = execute::cgroup(&self.shared, self.promised_pod());
            self.pod_limits_launched();
            self.lanes.launch(Lane::Cgroup, call);
        }
    }

    /// The address of a sandbox that has none yet.
    fn address_pass(&mut self, now: Instant) {
        let Some(sandbox) = ready_sandbox(&self.view.pod) else {
            return;
        };
        if !sandbox.ips.is_empty() || host_network(self.pod()) {
            return;
        }
        let id = sandbox.id.clone();
        let lane = Lane::Address(id.clone());
        if self.lanes.is_free(&lane, now) {
            self.lanes.launch(lane, execute::address(&self.shared, id));
        }
    }

    fn back_off(&mut self, all: &[BackingOff], now: Instant) {
        for back in all {
            self.look.at(now + back.left);
            let name = back.name.as_str();
            self.forget_failed_start(name);
            if self
                .view
                .backing_off
                .iter()
                .any(|before| before.name == back.name)
            {
                continue;
            }
            // A wait is the newer reason.
            let hook = |one: &Waiting| one.reason == POST_START_ERROR;
            if self.view.waiting.get(name).is_some_and(hook) {
                self.view.waiting.remove(name);
            }
            let message = format!(
                "Back-off restarting failed container {name} in pod {}_{}({})",
                self.key.name, self.key.namespace, self.key.uid
            );
            self.tell(Some(name), EventKind::Warning, BACK_OFF, message);
        }
        self.view.backing_off = all.to_vec();
    }

    /// Once it has been shown that a start has failed, the wait for the next one is shown.
    fn forget_failed_start(&mut self, name: &str) {
        let failed = |one: &Waiting| one.reason == RUN_ERROR;
        if self.view.waiting.get(name).is_some_and(failed) && self.publisher.is_settled() {
            self.view.waiting.remove(name);
        }
    }

    pub(super) fn tell(
        &self,
        container: Option<&str>,
        kind: EventKind,
        reason: &str,
        message: String,
    ) {
        self.shared
            .recorder
            .pod(self.pod(), container, kind, reason, message);
    }
}
