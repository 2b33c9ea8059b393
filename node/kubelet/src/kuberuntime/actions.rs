//! What one pass over a pod must do: pure.
//!
//! ```text
//! no Ready sandbox ── nothing left to run ──▶ finished
//!        │            something to run
//!        ▼
//! stop what runs in the old ones ▶ remove them ▶ create one, attempt + 1
//!        ▼
//! init containers, one after the other (skipped once a main container was made in this sandbox)
//!        ▼
//! main containers, all at once; each again by restart policy, after its back-off
//! ```

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use swiftlet_model::ids::{ContainerId, ContainerName, SandboxId};
use swiftlet_model::runtime::{
    ContainerState, ContainerStatus, RuntimePod, SandboxState, SandboxStatus,
};

use crate::kuberuntime::hash;
use crate::kuberuntime::history::History;

/// What one pass must do, in the order in which it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodActions {
    /// Containers to stop.
    pub stop: Vec<ContainerStop>,
    /// Sandboxes to stop and remove, once nothing runs in them.
    pub remove_sandboxes: Vec<SandboxId>,
    /// The attempt of the sandbox to create.
    pub create_sandbox: Option<u32>,
    /// Containers to create and start, or only to start.
    pub start: Vec<ContainerStart>,
    /// Containers that wait for the end of their back-off.
    pub backing_off: Vec<BackingOff>,
    /// Old records to remove from the runtime.
    pub remove: Vec<ContainerId>,
    /// All has ended and nothing will start again.
    pub finished: bool,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStop {
    /// Which.
    pub id: ContainerId,
    /// Its name.
    pub name: ContainerName,
    /// Why, for the Event.
    pub message: String,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStart {
    /// Its name.
    pub name: ContainerName,
    /// The sandbox to start it in.
    pub sandbox: SandboxId,
    /// The attempt, which is the restart count.
    pub attempt: u32,
    /// Created before, but not started.
    pub created: Option<ContainerId>,
}

/// A container in its crash loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingOff {
    /// Its name.
    pub name: ContainerName,
    /// The whole wait.
    pub wait: Duration,
    /// What is left of it.
    pub left: Duration,
}

/// `spec.restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// After an exit code other than zero.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// The pod's policy; `Always` is the API's default.
    pub fn of(pod: &Pod) -> Self {
        match pod
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref())
        {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `code` is started again.
    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Compares what the pod should be with what the runtime holds. Same arguments, same answer.
pub fn compute_pod_actions(
    desired: &Pod,
    observed: &RuntimePod,
    history: &History,
    now: Timestamp,
) -> PodActions {
    let Some(spec) = &desired.spec else {
        return PodActions::default();
    };
    let decision = Decision {
        desired,
        spec,
        observed,
        history,
        now,
    };
    let mut actions = match ready_sandbox(observed) {
        Some(sandbox) => decision.within(sandbox),
        None => decision.without_sandbox(),
    };
    if !actions.finished {
        decision.clear_sandboxes(&mut actions);
        decision.clear_records(&mut actions);
    }
    actions
}

/// The sandbox to work in: the newest Ready one.
pub fn ready_sandbox(observed: &RuntimePod) -> Option<&SandboxStatus> {
    let ready = observed
        .sandboxes
        .iter()
        .filter(|one| one.state == SandboxState::Ready);
    ready.max_by_key(|one| one.attempt)
}

struct Decision<'a> {
    desired: &'a Pod,
    spec: &'a PodSpec,
    observed: &'a RuntimePod,
    history: &'a History,
    now: Timestamp,
}

impl Decision<'_> {
    fn init(&self) -> &[Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    fn policy(&self) -> RestartPolicy {
        RestartPolicy::of(self.desired)
    }

    /// The newest container of that name in the sandbox.
    fn newest_in(&self, name: &str, sandbox: &SandboxId) -> Option<&ContainerStatus> {
        let mine = self.observed.containers.iter();
        mine.filter(|one| one.name.as_str() == name && one.sandbox == *sandbox)
            .max_by_key(|one| one.attempt)
    }

    fn newest(&self, name: &str) -> Option<&ContainerStatus> {
        self.history.newest(name)
    }

    fn exit_code(record: &ContainerStatus) -> Option<i32> {
        record
            .exit
            .as_ref()
            .filter(|_| record.state == ContainerState::Exited)
            .map(|e| e.code)
    }

    // Without a sandbox.

    fn without_sandbox(&self) -> PodActions {
        let mut actions = PodActions::default();
        let running = self.observed.containers.iter().any(|one| !is_over(one));
        if running {
            // They end first, each with its grace; then the next pass decides anew.
            return actions;
        }
        let mains = self.spec.containers.iter();
        if self.policy() == RestartPolicy::Never {
            let all = mains
                .chain(self.init())
                .map(|container| container.name.as_str());
            if self.history.any(all) {
                // A pod that must not run twice does not get a second sandbox.
                actions.finished = self.ends_known();
                return actions;
            }
        } else if self.policy() == RestartPolicy::OnFailure
            && mains
                .clone()
                .all(|one| self.newest(&one.name).and_then(Self::exit_code) == Some(0))
        {
            actions.finished = true;
            return actions;
        }
        if !self.ends_known() {
            return actions;
        }
        if self.observed.sandboxes.is_empty() {
            actions.create_sandbox = Some(self.history.next_sandbox);
        }
        actions
    }

    /// Whether the exit code of every ended container is known.
    fn ends_known(&self) -> bool {
        let all = self.spec.containers.iter().chain(self.init());
        let mut newest = all.filter_map(|container| self.newest(&container.name));
        newest.all(|record| record.state != ContainerState::Exited || record.exit.is_some())
    }

    // With a sandbox.

    fn within(&self, sandbox: &SandboxStatus) -> PodActions {
        let mut actions = PodActions::default();
        let main_was_made = self
            .spec
            .containers
            .iter()
            .any(|one| self.newest_in(&one.name, &sandbox.id).is_some());
        let initialised = main_was_made || self.init_step(sandbox, &mut actions);
        if initialised {
            for container in &self.spec.containers {
                self.main_step(container, sandbox, &mut actions);
            }
            let idle = actions.start.is_empty() && actions.backing_off.is_empty();
            actions.finished = idle && self.spec.containers.iter().all(|one| self.is_done(one));
        }
        actions
    }

    /// One step of the init containers; true when all are done.
    fn init_step(&self, sandbox: &SandboxStatus, actions: &mut PodActions) -> bool {
        for container in self.init() {
            let Some(record) = self.newest_in(&container.name, &sandbox.id) else {
                actions.start.push(self.start(container, sandbox, None));
                return false;
            };
            match (&record.state, Self::exit_code(record)) {
                (ContainerState::Exited, Some(0)) => continue,
                (ContainerState::Exited, Some(_)) if self.policy() == RestartPolicy::Never => {
                    actions.finished = true;
                }
                (ContainerState::Exited, Some(_)) => {
                    self.restart(container, record, sandbox, actions);
                }
                // How it has ended is not known yet.
                (ContainerState::Exited, None) => {}
                _ => self.living(container, record, sandbox, actions),
            }
            return false;
        }
        true
    }

    fn main_step(&self, container: &Container, sandbox: &SandboxStatus, actions: &mut PodActions) {
        let newest = self.newest(&container.name).map(|one| one.attempt);
        let record = self.newest_in(&container.name, &sandbox.id);
        let Some(record) = record.filter(|one| Some(one.attempt) == newest) else {
            // It may have ended in another sandbox.
            let before = self.newest(&container.name).and_then(Self::exit_code);
            if before.is_none_or(|code| self.policy().restarts(code)) {
                actions.start.push(self.start(container, sandbox, None));
            }
            return;
        };
        match (&record.state, Self::exit_code(record)) {
            (ContainerState::Exited, Some(code)) if self.policy().restarts(code) => {
                self.restart(container, record, sandbox, actions);
            }
            (ContainerState::Exited, _) => {}
            _ => self.living(container, record, sandbox, actions),
        }
    }

    /// A container that has not ended.
    fn living(
        &self,
        container: &Container,
        record: &ContainerStatus,
        sandbox: &SandboxStatus,
        actions: &mut PodActions,
    ) {
        let changed = hash::changed(record.spec_hash, container);
        match record.state {
            ContainerState::Created if changed => actions.remove.push(record.id.clone()),
            ContainerState::Created => {
                let created = Some((record.id.clone(), record.attempt));
                actions.start.push(self.start(container, sandbox, created));
            }
            ContainerState::Running if changed => actions.stop.push(stop_of(
                record,
                format!(
                    "Container {} definition changed, will be restarted",
                    container.name
                ),
            )),
            ContainerState::Unknown => actions.stop.push(stop_of(
                record,
                format!(
                    "Container {} is in unknown state, will be restarted",
                    container.name
                ),
            )),
            ContainerState::Running | ContainerState::Exited => {}
        }
    }

    fn restart(
        &self,
        container: &Container,
        record: &ContainerStatus,
        sandbox: &SandboxStatus,
        actions: &mut PodActions,
    ) {
        let wait = self.history.crash_wait(&container.name, record.attempt);
        let ended = record.exit.as_ref().map_or(self.now, |exit| exit.at);
        let since = Duration::try_from(self.now.duration_since(ended)).unwrap_or_default();
        // A changed spec is a new container: its crashes are not counted yet.
        if since >= wait || hash::changed(record.spec_hash, container) {
            actions.start.push(self.start(container, sandbox, None));
        } else {
            let name = ContainerName::from(container.name.as_str());
            actions.backing_off.push(BackingOff {
                name,
                wait,
                left: wait.saturating_sub(since),
            });
        }
    }

    fn start(
        &self,
        container: &Container,
        sandbox: &SandboxStatus,
        created: Option<(ContainerId, u32)>,
    ) -> ContainerStart {
        let (created, attempt) = match created {
            Some((id, attempt)) => (Some(id), attempt),
            None => (None, self.history.next_attempt(&container.name)),
        };
        let name = ContainerName::from(container.name.as_str());
        ContainerStart {
            name,
            sandbox: sandbox.id.clone(),
            attempt,
            created,
        }
    }

    fn is_done(&self, container: &Container) -> bool {
        let code = self.newest(&container.name).and_then(Self::exit_code);
        code.is_some_and(|code| !self.policy().restarts(code))
    }

    // Cleaning.

    /// All sandboxes but the one to work in go; what runs in them is stopped before.
    fn clear_sandboxes(&self, actions: &mut PodActions) {
        let keep = ready_sandbox(self.observed).map(|sandbox| &sandbox.id);
        for container in &self.observed.containers {
            if Some(&container.sandbox) != keep && !is_over(container) {
                let message = format!("Stopping container {}", container.name);
                actions.stop.push(stop_of(container, message));
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
    fn clear_records(&self, actions: &mut PodActions) {
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
fn is_over(container: &ContainerStatus) -> bool {
    matches!(
        container.state,
        ContainerState::Exited | ContainerState::Created
    )
}

fn stop_of(container: &ContainerStatus, message: String) -> ContainerStop {
    ContainerStop {
        id: container.id.clone(),
        name: container.name.clone(),
        message,
    }
}

#[cfg(test)]
mod tests;
