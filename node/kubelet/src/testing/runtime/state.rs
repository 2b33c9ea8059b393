//! What the runtime in memory holds, and what a test wants of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerExit, ContainerState, ContainerStatus, ExecOutput, Image,
    ImageFilesystem, ImageUser, Mount, RuntimeError, RuntimePod, SandboxState, SandboxStatus,
    labels,
};

use crate::testing::runtime::not_found;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does nothing.
    Unavailable,
    /// It works, but the answer is lost.
    TimeoutAfterEffect,
    /// It is refused.
    Refused,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) sandboxes: Vec<SandboxStatus>,
    pub(crate) containers: Vec<ContainerStatus>,
    pub(super) owner: BTreeMap<SandboxId, PodUid>,
    /// The names of the calls, in order, with what they were about.
    pub(crate) calls: Vec<String>,
    /// What containers mount, by name.
    pub(crate) mounts: BTreeMap<String, Vec<Mount>>,
    /// Faults of the next calls with effects.
    pub(crate) faults: VecDeque<Option<Fault>>,
    pub(crate) down: bool,
    /// Nothing can be removed.
    pub(crate) removal_fails: bool,
    pub(crate) images: Vec<String>,
    /// What the next commands in containers come back with; success if there is nothing left.
    pub(crate) exec_answers: VecDeque<Result<ExecOutput, RuntimeError>>,
    pub(crate) pull_fails: bool,
    /// Who may pull; everyone if nobody is named.
    pub(crate) pull_user: Option<String>,
    /// Who has pulled.
    pub(crate) pull_users: Vec<Option<String>>,
    /// The user of all images.
    pub(crate) image_user: ImageUser,
    /// What it has, if that is more than names.
    pub(crate) image_list: Vec<Image>,
    pub(crate) image_filesystem: Option<ImageFilesystem>,
    /// Containers that end before they run, by name.
    pub(crate) starts_fail: Vec<String>,
    /// Pulls that begin now never end.
    pub(crate) pull_hangs: bool,
    /// Whoever asks for a pod panics.
    pub(crate) panics: bool,
    /// How long each sandbox could take.
    pub(crate) sandbox_limits: Vec<Duration>,
    /// Starts that have been asked for, by pod.
    pub(crate) begun: BTreeMap<PodUid, usize>,
    /// Containers started so far.
    pub(crate) starts: usize,
    /// How long containers take to end after SIGTERM, by name; otherwise no time at all.
    pub(crate) stop_takes: BTreeMap<String, Duration>,
    /// Exit code of containers that are stopped in time; 143 if there is none.
    pub(crate) stop_code: Option<i32>,
    /// A pod whose containers cannot be stopped.
    pub(crate) unstoppable: Option<PodUid>,
    /// Pods whose sandboxes are not made before the caller's time is over.
    pub(crate) sandbox_hangs: Vec<PodUid>,
    /// Pods of which the runtime answers nothing.
    pub(crate) query_hangs: Vec<PodUid>,
    /// The runtime does not answer where its images lie.
    pub(crate) image_filesystem_hangs: bool,
    /// Commands in containers fail.
    pub(crate) exec_fails: bool,
    /// How long commands in containers take.
    pub(crate) exec_takes: Duration,
    /// What was there when containers were started or asked to stop, since the test last looked.
    pub(crate) moments: Vec<Moment>,
    pub(super) next: usize,
}

/// A container is started or asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) pod: PodUid,
    pub(crate) name: String,
    pub(crate) at: tokio::time::Instant,
    /// The grace period, if it is asked to stop.
    pub(crate) stop: Option<Duration>,
    /// The containers of its sandbox at that moment.
    pub(crate) beside: Vec<ContainerStatus>,
}

impl State {
    pub(super) fn id(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    /// Remembers what is there while `id` is started or asked to stop.
    pub(super) fn note(&mut self, id: &ContainerId, stop: Option<Duration>) {
        let Some(one) = self.containers.iter().find(|one| one.id == *id) else {
            return;
        };
        let Some(pod) = self.owner.get(&one.sandbox).cloned() else {
            return;
        };
        let beside = self
            .containers
            .iter()
            .filter(|other| other.sandbox == one.sandbox);
        let moment = Moment {
            pod,
            name: one.name.to_string(),
            at: tokio::time::Instant::now(),
            stop,
            beside: beside.cloned().collect(),
        };
        self.moments.push(moment);
    }

    /// A container is made.
    pub(super) fn create(
        &mut self,
        sandbox: &SandboxId,
        container: &ContainerConfig,
        at: Timestamp,
    ) -> Result<ContainerId, RuntimeError> {
        let ready = |one: &&SandboxStatus| one.id == *sandbox && one.state == SandboxState::Ready;
        if self.sandboxes.iter().find(ready).is_none() {
            return Err(not_found(sandbox.as_str()));
        }
        let taken = |one: &ContainerStatus| {
            one.sandbox == *sandbox
                && one.name == container.name
                && one.attempt == container.attempt
        };
        if self.containers.iter().any(taken) {
            let message = "reserved".to_owned();
            return Err(RuntimeError::AlreadyExists {
                call: "fake",
                message,
            });
        }
        let mounts = container.mounts.clone();
        self.mounts.insert(container.name.to_string(), mounts);
        let hash = container.annotations.get(labels::CONTAINER_HASH);
        let id = ContainerId::from(self.id("c"));
        self.containers.push(ContainerStatus {
            id: id.clone(),
            name: container.name.clone(),
            sandbox: sandbox.clone(),
            attempt: container.attempt,
            state: ContainerState::Created,
            created_at: at,
            started_at: None,
            exit: None,
            image: container.image.clone(),
            image_id: "sha256:1".into(),
            spec_hash: hash.and_then(|hash| u64::from_str_radix(hash, 16).ok()),
        });
        Ok(id)
    }

    /// A container is started.
    pub(super) fn start(&mut self, id: &ContainerId, at: Timestamp) -> Result<(), RuntimeError> {
        self.starts += 1;
        let found = self.containers.iter_mut().find(|one| one.id == *id);
        let container = found.ok_or_else(|| not_found(id.as_str()))?;
        let mut failing = self.starts_fail.iter();
        if failing.any(|name| name == container.name.as_str()) {
            end(container, 128, at);
            return Err(RuntimeError::Refused {
                call: "StartContainer",
                message: "no such command".into(),
            });
        }
        if container.state == ContainerState::Created {
            container.state = ContainerState::Running;
            container.started_at = Some(at);
            self.note(id, None);
        }
        Ok(())
    }

    pub(super) fn stop_in(&mut self, sandbox: &SandboxId, at: Timestamp) {
        for container in self
            .containers
            .iter_mut()
            .filter(|one| one.sandbox == *sandbox)
        {
            if container.state == ContainerState::Running {
                end(container, 137, at);
            }
        }
    }

    pub(crate) fn pod(&self, uid: &PodUid) -> Option<RuntimePod> {
        let mine = |id: &SandboxId| self.owner.get(id) == Some(uid);
        let sandboxes: Vec<_> = self
            .sandboxes
            .iter()
            .rev()
            .filter(|one| one.pod.uid == *uid)
            .cloned()
            .collect();
        let pod = sandboxes.first()?.pod.clone();
        let containers = self
            .containers
            .iter()
            .rev()
            .filter(|one| mine(&one.sandbox));
        Some(RuntimePod {
            pod,
            containers: containers.cloned().collect(),
            sandboxes,
        })
    }
}

pub(super) fn end(container: &mut ContainerStatus, code: i32, at: Timestamp) {
    container.state = ContainerState::Exited;
    let reason = if code == 0 { "Completed" } else { "Error" };
    container.exit = Some(ContainerExit {
        code,
        oom_killed: false,
        at,
        reason: reason.into(),
        message: String::new(),
    });
}
