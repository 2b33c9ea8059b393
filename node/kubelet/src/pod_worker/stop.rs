//! Stopping containers, each in its turn, and removing what must not be there.
//!
//! ```text
//! Killing is told ─▶ preStop hook ─▶ its turn (sidecars last) ─▶ stop call with what is left
//!                        └── the deadline is reached: at once ──▶ stop call with two seconds
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use swiftlet_model::events::{EventKind, KILLING, SANDBOX_CHANGED};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::{ContainerState, ContainerStatus};

use crate::housekeeping::logs::container_log;
use crate::kuberuntime::actions::order::may_stop;
use crate::kuberuntime::actions::{ContainerStop, PodActions, container_of};
use crate::kuberuntime::config::grace_period_s;
use crate::kuberuntime::execute;
use crate::kuberuntime::hooks::pre_stop;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::{Cause, Phase};
use crate::pod_worker::{GRACE_MIN, Worker};

/// A container that is being stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping {
    /// When its grace period is over; only ever nearer.
    pub(crate) deadline: Instant,
    /// Its preStop hook.
    pub(crate) hook: PreStop,
    /// Grows when the deadline comes nearer.
    round: u32,
}

/// How far a preStop hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreStop {
    /// Nobody has looked for one yet.
    Due,
    /// It runs.
    Running,
    /// It is over, or there is none.
    Over,
}

impl Worker {
    /// Stops and removes what must not be there.
    pub(super) fn clear(&mut self, actions: &PodActions, now: Instant) {
        for stop in &actions.stop {
            self.stop_in_sync(stop, now);
        }
        for id in &actions.remove {
            // One that is being started is stopped first, once it is known to run.
            let name = self.view.container(id).map(|one| one.name.clone());
            let starts = name.is_some_and(|name| self.lanes.is_busy(&Lane::Start(name)));
            if !starts {
                self.remove_container(id, now);
            }
        }
        for id in &actions.remove_sandboxes {
            let runs = self.view.living().any(|container| container.sandbox == *id);
            let starts = self
                .lanes
                .any_busy(|lane| matches!(lane, Lane::Sandbox | Lane::Create(_) | Lane::Start(_)));
            if runs || starts {
                continue;
            }
            if self.view.stopped.contains(id) {
                self.remove_sandbox(id.clone(), now);
            } else if self.lanes.is_free(&Lane::StopSandbox(id.clone()), now) {
                let message = "Pod sandbox changed, it will be killed and re-created.";
                self.tell(None, EventKind::Normal, SANDBOX_CHANGED, message.to_owned());
                self.stop_sandbox(id.clone(), now);
            }
        }
    }

    /// Removes a container that does not run, with its log.
    pub(super) fn remove_container(&mut self, id: &ContainerId, now: Instant) {
        let lane = Lane::Remove(id.clone());
        if !self.lanes.is_free(&lane, now) {
            return;
        }
        let Some(record) = self.view.pod.containers.iter().find(|one| one.id == *id) else {
            return;
        };
        let log = self.log_of(record);
        let call = execute::remove(&self.shared, id.clone(), log);
        self.lanes.launch(lane, call);
    }

    fn log_of(&self, record: &ContainerStatus) -> PathBuf {
        let root = &self.shared.log_root;
        container_log(root, &self.key, record.name.as_str(), record.attempt)
    }

    /// The pod's own grace period.
    pub(super) fn grace(&self) -> Duration {
        let grace = grace_period_s(self.pod());
        Duration::from_secs(u64::try_from(grace).unwrap_or_default())
    }

    pub(super) fn stop_in_sync(&mut self, stop: &ContainerStop, now: Instant) {
        if stop.restart {
            self.view.history.doom(&stop.id);
        }
        let grace = stop.grace.unwrap_or_else(|| self.grace());
        self.bring_down(stop, now + grace, now);
    }

    /// Takes the next step of stopping a container that lives.
    pub(super) fn bring_down(&mut self, stop: &ContainerStop, deadline: Instant, now: Instant) {
        let stopping = self.stopping(stop, deadline);
        let left = stopping.deadline.saturating_duration_since(now);
        if !left.is_zero() && (self.pre_stop_runs(stop, left) || !self.is_its_turn(stop)) {
            self.look.at(stopping.deadline);
            return;
        }
        let lane = Lane::Stop(stop.id.clone(), stopping.round);
        if self.lanes.is_free(&lane, now) {
            let call = execute::stop(&self.shared, stop.id.clone(), left.max(GRACE_MIN));
            self.lanes.launch(lane, call);
        }
    }

    /// What is known of the container's end; it begins now, if nothing is.
    fn stopping(&mut self, stop: &ContainerStop, deadline: Instant) -> Stopping {
        if let Some(known) = self.view.stopping.get_mut(&stop.id) {
            if deadline < known.deadline {
                known.deadline = deadline;
                known.round += 1;
            }
            return *known;
        }
        let begun = Stopping {
            deadline,
            hook: PreStop::Due,
            round: 0,
        };
        self.view.stopping.insert(stop.id.clone(), begun);
        let vanished = |cause| cause == Cause::Vanished;
        if !self.phase.ending().is_some_and(|one| vanished(one.cause)) {
            let (name, message) = (stop.name.as_str(), stop.message.clone());
            self.tell(Some(name), EventKind::Normal, KILLING, message);
        }
        begun
    }

    /// Runs the container's preStop hook, once; true while it runs.
    fn pre_stop_runs(&mut self, stop: &ContainerStop, left: Duration) -> bool {
        let hook = self.view.stopping.get(&stop.id).map(|one| one.hook);
        let runs = match hook {
            Some(PreStop::Due) => self.run_pre_stop(stop, left),
            Some(PreStop::Running) => self.lanes.is_busy(&Lane::PreStop(stop.id.clone())),
            Some(PreStop::Over) | None => false,
        };
        if let Some(stopping) = self.view.stopping.get_mut(&stop.id) {
            stopping.hook = if runs {
                PreStop::Running
            } else {
                PreStop::Over
            };
        }
        runs
    }

    fn run_pre_stop(&mut self, stop: &ContainerStop, left: Duration) -> bool {
        let container = container_of(self.pod(), stop.name.as_str());
        let Some(container) = container.filter(|one| pre_stop(one).is_some()) else {
            return false;
        };
        let running = |state: &ContainerState| *state == ContainerState::Running;
        let record = self.view.container(&stop.id);
        if !record.is_some_and(|record| running(&record.state)) {
            return false;
        }
        self.launch_pre_stop(&container, &stop.id, left);
        true
    }

    /// In a pod that goes on every container is stopped for itself.
    fn is_its_turn(&self, stop: &ContainerStop) -> bool {
        let spec = self.order.pod.spec.as_ref();
        let Some(spec) = spec.filter(|_| self.phase != Phase::Sync) else {
            return true;
        };
        let (name, lanes) = (stop.name.as_str(), &self.lanes);
        let unsure = self.view.stale || lanes.is_busy(&Lane::Query) || lanes.is_making();
        if unsure {
            // There may be more that lives than is known: whoever waits for others waits.
            return may_stop(spec, name, |_| true);
        }
        let lives = |name: &str| self.view.living().any(|one| one.name.as_str() == name);
        may_stop(spec, name, lives)
    }

    pub(super) fn stop_sandbox(&mut self, id: swiftlet_model::ids::SandboxId, now: Instant) {
        let lane = Lane::StopSandbox(id.clone());
        if self.lanes.is_free(&lane, now) {
            self.lanes
                .launch(lane, execute::stop_sandbox(&self.shared, id));
        }
    }

    pub(super) fn remove_sandbox(&mut self, id: swiftlet_model::ids::SandboxId, now: Instant) {
        let lane = Lane::RemoveSandbox(id.clone());
        if self.lanes.is_free(&lane, now) {
            let all = self.view.pod.containers.iter();
            let mine = all.filter(|one| one.sandbox == id);
            let logs = mine.map(|one| self.log_of(one)).collect();
            let call = execute::remove_sandbox(&self.shared, id, logs);
            self.lanes.launch(lane, call);
        }
    }
}
