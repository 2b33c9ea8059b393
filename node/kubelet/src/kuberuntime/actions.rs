//! What one pass over a pod must do: pure.
//!
//! ```text
//! no Ready sandbox ── nothing left to run ──▶ finished
//!        │            something to run
//!        ▼
//! stop what runs in the old ones ▶ remove them ▶ create one, attempt + 1
//!        ▼
//! init containers, one after the other (skipped once a main container was made in this sandbox);
//! sidecars among them go on, and the next one follows when they have started
//!        ▼
//! main containers, all at once; each again by restart policy, after its back-off
//!        ▼
//! all main containers have ended for good ──▶ finished, whatever the sidecars do
//! ```
//!
//! The rules are those of `computePodActions` in
//! `pkg/kubelet/kuberuntime/kuberuntime_manager.go`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use swiftlet_model::ids::{ContainerId, ContainerName, SandboxId};
use swiftlet_model::runtime::{
    ContainerState, ContainerStatus, RuntimePod, SandboxState, SandboxStatus,
};

use crate::kuberuntime::history::History;
use crate::prober::results::ProbeResults;

mod clear;
mod containers;
mod init;
pub mod order;
pub mod policy;

pub use containers::{as_container, container_of};
pub use policy::RestartPolicy;

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
    /// Nothing that counts runs or will start again; sidecars may still run.
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
    /// How long it has to end; `None` for the pod's grace period.
    pub grace: Option<Duration>,
    /// It is started anew after that, whatever its exit code and the restart policy.
    pub restart: bool,
}

impl ContainerStop {
    /// Stops a container within the pod's grace period; the policy decides what follows.
    pub fn of(container: &ContainerStatus, message: String) -> Self {
        Self {
            id: container.id.clone(),
            name: container.name.clone(),
            message,
            grace: None,
            restart: false,
        }
    }
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
    /// This one comes first, unless something keeps it from starting: it has a postStart hook.
    pub after: Option<ContainerName>,
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

/// Compares what the pod should be with what the runtime holds. Same arguments, same answer.
pub fn compute_pod_actions(
    desired: &Pod,
    observed: &RuntimePod,
    history: &History,
    probes: &ProbeResults,
    now: Timestamp,
) -> PodActions {
    let Some(spec) = &desired.spec else {
        return PodActions::default();
    };
    let decision = Decision {
        spec,
        observed,
        history,
        probes,
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
    spec: &'a PodSpec,
    observed: &'a RuntimePod,
    history: &'a History,
    probes: &'a ProbeResults,
    now: Timestamp,
}

impl Decision<'_> {
    fn init(&self) -> &[Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
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

    fn without_sandbox(&self) -> PodActions {
        let mut actions = PodActions::default();
        let running = self
            .observed
            .containers
            .iter()
            .any(|one| !clear::is_over(one));
        if running {
            // They end first, each with its grace; then the next pass decides anew.
            return actions;
        }
        let mains = || self.spec.containers.iter();
        if !mains().any(|one| policy::may_restart(self.spec, one)) {
            let all = mains().chain(self.init());
            if self.history.any(all.map(|one| one.name.as_str())) {
                // A pod that must not run twice does not get a second sandbox.
                actions.finished = self.ends_known();
                return actions;
            }
        } else if mains().all(|one| self.is_done(one)) {
            actions.finished = true;
            return actions;
        }
        if self.ends_known() && self.observed.sandboxes.is_empty() {
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

    fn within(&self, sandbox: &SandboxStatus) -> PodActions {
        let mut actions = PodActions::default();
        if self.init_step(sandbox, &mut actions) {
            self.mains_step(sandbox, &mut actions);
            actions.finished = self.spec.containers.iter().all(|one| self.is_done(one));
        }
        if actions.finished {
            // Sidecars do not keep a pod alive: they are not started again, and end with it.
            return PodActions {
                finished: true,
                ..PodActions::default()
            };
        }
        self.ephemeral_step(sandbox, &mut actions);
        actions
    }
}

#[cfg(test)]
mod tests;
