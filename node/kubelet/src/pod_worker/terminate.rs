//! The passes over a pod that ends: first stop everything, then clean up.

use std::time::Instant;

use swiftlet_model::ids::SandboxId;
use swiftlet_model::runtime::ContainerStatus;

use crate::kuberuntime::actions::ContainerStop;
use crate::kuberuntime::execute;
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::{Cause, Ending, Phase, Step};

impl Worker {
    /// Stops containers, then sandboxes. Nothing is started here; what is being made is waited for,
    /// since dropping a call does not undo it: the sandboxes wait for what may run in them, and the
    /// end for all of it.
    pub(super) fn terminating_pass(&mut self, ending: Ending) {
        let now = self.now();
        self.view.backing_off.clear();
        let settled = self.query_pass(now);
        if !self.view.known {
            return;
        }
        self.record_pass(now);
        // What is known to run is stopped even while the runtime is being asked for more.
        self.stop_containers(ending, now);
        if !settled || self.view.is_living() || self.lanes.is_making() {
            return;
        }
        for id in self.sandboxes() {
            if !self.view.stopped.contains(&id) {
                self.stop_sandbox(id, now);
            }
        }
        let stopping = |lane: &Lane| matches!(lane, Lane::Stop(..) | Lane::StopSandbox(_));
        let all_stopped = self
            .sandboxes()
            .iter()
            .all(|id| self.view.stopped.contains(id));
        let busy = self.lanes.is_preparing() || self.lanes.any_busy(stopping);
        if all_stopped && !busy && self.view.has_all_records() {
            self.step(Step::Stopped);
        }
    }

    fn stop_containers(&mut self, ending: Ending, now: Instant) {
        let living = self.view.living();
        let stop = |one: &ContainerStatus| {
            let message = format!("Stopping container {}", one.name);
            ContainerStop::of(one, message)
        };
        let living: Vec<_> = living.map(stop).collect();
        for stop in living {
            self.bring_down(&stop, ending.deadline, now);
        }
    }

    fn sandboxes(&self) -> Vec<SandboxId> {
        self.view
            .pod
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.id.clone())
            .collect()
    }

    /// Cleans up. Every part is repeated until it has worked, and none waits for another.
    pub(super) fn terminated_pass(&mut self, ending: Ending) {
        let now = self.now();
        if !self.query_pass(now) {
            return;
        }
        self.record_pass(now);
        self.clean_node(ending.cause.is_leaving(), now);
        self.count_dead();
        if !ending.cause.is_leaving() && !self.cleaned.reclaiming {
            // Its records stay for status and logs until it is deleted, or the disk is full.
            return;
        }
        if !ending.cause.is_leaving() && !self.view.pod.containers.is_empty() {
            // Its logs are still there, and go with its containers.
            self.remove_containers(now);
            return;
        }
        for id in self.sandboxes() {
            if self.view.stopped.contains(&id) {
                self.remove_sandbox(id, now);
            } else {
                self.stop_sandbox(id, now);
            }
        }
        if self.view.pod.sandboxes.is_empty() {
            // Those whose sandbox is gone.
            self.remove_containers(now);
        }
        let clean = self.cleaned.volumes
            && self.cleaned.logs
            && self.cleaned.cgroup
            && self.view.pod.sandboxes.is_empty()
            && self.view.pod.containers.is_empty();
        if !clean || !ending.cause.is_leaving() {
            return;
        }
        match ending.cause {
            Cause::Deleted if !self.cleaned.said => self.say_gone(now),
            _ => self.step(Step::Gone),
        }
    }

    /// The disk is full: of a pod that has ended the runtime keeps nothing any more.
    pub(super) fn begin_reclaim(&mut self) {
        self.cleaned.reclaiming |= matches!(self.phase, Phase::Terminated(_));
    }

    /// Lets the node know whether the runtime keeps something of this pod, which has ended.
    fn count_dead(&self) {
        let held = &self.view.pod;
        let is_there = !held.sandboxes.is_empty() || !held.containers.is_empty();
        self.shared.keeper.dead.note(&self.key.uid, is_there);
    }

    /// `logs`: they go too. As long as the pod can be asked for its logs, they stay.
    fn clean_node(&mut self, logs: bool, now: Instant) {
        let left = !self.cleaned.volumes || (logs && !self.cleaned.logs);
        if left && self.lanes.is_free(&Lane::TearDown, now) {
            let call = execute::tear_down(&self.shared, self.key.uid.clone(), logs);
            self.lanes.launch(Lane::TearDown, call);
        }
        if !self.cleaned.cgroup && self.lanes.is_free(&Lane::RemoveCgroup, now) {
            self.shared.doors.tracker.untrack(&self.key.uid);
            let call = execute::remove_cgroup(&self.shared, self.key.uid.clone());
            self.lanes.launch(Lane::RemoveCgroup, call);
        }
    }

    /// All containers, one by one.
    fn remove_containers(&mut self, now: Instant) {
        let all: Vec<_> = self
            .view
            .pod
            .containers
            .iter()
            .map(|one| one.id.clone())
            .collect();
        for id in all {
            self.remove_container(&id, now);
        }
    }

    /// The last word, after the last status.
    fn say_gone(&mut self, now: Instant) {
        if self.publisher.is_settled() && self.lanes.is_free(&Lane::PodGone, now) {
            let call = execute::pod_gone(&self.shared, self.key.clone());
            self.lanes.launch(Lane::PodGone, call);
        }
    }
}
