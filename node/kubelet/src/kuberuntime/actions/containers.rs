//! What becomes of each container that is not an init container, and of each that lives.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use swiftlet_model::ids::{ContainerId, ContainerName};
use swiftlet_model::runtime::{ContainerState, ContainerStatus, SandboxStatus};
use swiftlet_proto::pod::{is_sidecar, plain_container};

use crate::kuberuntime::actions::policy::{may_restart, restarts};
use crate::kuberuntime::actions::{
    BackingOff, ContainerStart, ContainerStop, Decision, PodActions,
};
use crate::kuberuntime::hash;
use crate::kuberuntime::hooks::post_start;

impl Decision<'_> {
    /// The main containers, all at once; but those behind one with a postStart hook wait until that
    /// is over, as kubelet starts them one after the other.
    pub(super) fn mains_step(&self, sandbox: &SandboxStatus, actions: &mut PodActions) {
        let mut after: Option<ContainerName> = None;
        let mut held = false;
        for container in &self.spec.containers {
            let before = actions.start.len();
            self.main_step(container, sandbox, actions);
            if held {
                actions.start.truncate(before);
            }
            for start in &mut actions.start[before..] {
                start.after.clone_from(&after);
            }
            if post_start(container).is_none() {
                continue;
            }
            let record = self.newest_in(&container.name, &sandbox.id);
            let runs = record.filter(|one| one.state == ContainerState::Running);
            held |= runs.is_some_and(|one| self.history.is_starting(&one.id));
            if actions.start.len() > before {
                after = Some(ContainerName::from(container.name.as_str()));
            }
        }
    }

    fn main_step(&self, container: &Container, sandbox: &SandboxStatus, actions: &mut PodActions) {
        let newest = self.newest(&container.name).map(|one| one.attempt);
        let record = self.newest_in(&container.name, &sandbox.id);
        let Some(record) = record.filter(|one| Some(one.attempt) == newest) else {
            // It may have ended in another sandbox.
            let before = self.newest(&container.name).and_then(Self::exit_code);
            if before.is_none_or(|code| restarts(self.spec, container, code)) {
                actions.start.push(self.start(container, sandbox, None));
            }
            return;
        };
        match (&record.state, Self::exit_code(record)) {
            (ContainerState::Exited, Some(code)) if self.comes_back(container, record, code) => {
                self.restart(container, record, sandbox, actions);
            }
            (ContainerState::Exited, _) => {}
            _ => self.living(container, record, sandbox, actions),
        }
    }

    fn comes_back(&self, container: &Container, record: &ContainerStatus, code: i32) -> bool {
        restarts(self.spec, container, code) || self.history.is_doomed(&record.id)
    }

    /// Whether a main container has ended for good.
    pub(super) fn is_done(&self, container: &Container) -> bool {
        let Some(record) = self.newest(&container.name) else {
            return false;
        };
        Self::exit_code(record).is_some_and(|code| !self.comes_back(container, record, code))
    }

    /// Ephemeral containers are started once, whatever the others do.
    pub(super) fn ephemeral_step(&self, sandbox: &SandboxStatus, actions: &mut PodActions) {
        for ephemeral in self.spec.ephemeral_containers.iter().flatten() {
            let created = match self.newest(&ephemeral.name) {
                None => None,
                Some(record)
                    if record.state == ContainerState::Created && record.sandbox == sandbox.id =>
                {
                    Some((record.id.clone(), record.attempt))
                }
                Some(_) => continue,
            };
            let container = as_container(ephemeral);
            actions.start.push(self.start(&container, sandbox, created));
        }
    }

    /// A container that has not ended.
    pub(super) fn living(
        &self,
        container: &Container,
        record: &ContainerStatus,
        sandbox: &SandboxStatus,
        actions: &mut PodActions,
    ) {
        match record.state {
            ContainerState::Created if hash::changed(record.spec_hash, container) => {
                actions.remove.push(record.id.clone());
            }
            ContainerState::Created => {
                let created = Some((record.id.clone(), record.attempt));
                actions.start.push(self.start(container, sandbox, created));
            }
            ContainerState::Running => actions.stop.extend(self.misfit(container, record)),
            ContainerState::Unknown => {
                let message = format!(
                    "Container {} is in unknown state, will be restarted",
                    container.name
                );
                actions.stop.push(ContainerStop {
                    restart: true,
                    ..ContainerStop::of(record, message)
                });
            }
            ContainerState::Exited => {}
        }
    }

    /// Why a running container must be stopped, if it must; the words are kubelet's.
    fn misfit(&self, container: &Container, record: &ContainerStatus) -> Option<ContainerStop> {
        let name = &container.name;
        let init = self.init().iter().any(|one| one.name == *name);
        let who = if init { "Init container" } else { "Container" };
        // An init container that runs is let run to its end.
        let once = init && !is_sidecar(container);
        if hash::changed(record.spec_hash, container) && !once {
            let tail = if init { "" } else { ", will be restarted" };
            let message = format!("{who} {name} definition changed{tail}");
            return Some(ContainerStop {
                restart: true,
                ..ContainerStop::of(record, message)
            });
        }
        if self.history.has_failed_hook(&record.id) {
            let message = "FailedPostStartHook".to_owned();
            return Some(ContainerStop::of(record, message));
        }
        let unhealthy = self.probes.unhealthy(&record.id)?;
        let restart = init || may_restart(self.spec, container);
        let tail = if restart && !init {
            ", will be restarted"
        } else {
            ""
        };
        let message = format!("{who} {name} failed {} probe{tail}", unhealthy.probe.word());
        Some(ContainerStop {
            grace: unhealthy.grace,
            restart,
            ..ContainerStop::of(record, message)
        })
    }

    pub(super) fn restart(
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
        let free = hash::changed(record.spec_hash, container) || self.is_free(record, wait);
        if since >= wait || free {
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

    /// A container that was stopped to be started anew need not wait if its wait was over already
    /// when it was stopped, counted from the end of the run before (`doBackOff` of kubelet).
    fn is_free(&self, record: &ContainerStatus, wait: Duration) -> bool {
        let end = |one: &ContainerStatus| one.exit.as_ref().map(|exit| exit.at);
        let before = self.history.previous(record.name.as_str()).and_then(end);
        let ran = end(record).zip(before);
        let ran = ran.map(|(end, before)| {
            Duration::try_from(end.duration_since(before)).unwrap_or_default()
        });
        self.history.is_doomed(&record.id) && ran.is_none_or(|ran| ran >= wait)
    }

    pub(super) fn start(
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
            after: None,
        }
    }
}

/// The container of that name in any of the pod's lists.
pub fn container_of(pod: &Pod, name: &str) -> Option<Container> {
    if let Some(found) = plain_container(pod, name) {
        return Some(found.clone());
    }
    let spec = pod.spec.as_ref()?;
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    ephemeral.find(|one| one.name == name).map(as_container)
}

/// An ephemeral container as a container: it has the same fields, and a target beside them.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let one = ephemeral.clone();
    Container {
        args: one.args,
        command: one.command,
        env: one.env,
        env_from: one.env_from,
        image: one.image,
        image_pull_policy: one.image_pull_policy,
        lifecycle: one.lifecycle,
        liveness_probe: one.liveness_probe,
        name: one.name,
        ports: one.ports,
        readiness_probe: one.readiness_probe,
        resize_policy: one.resize_policy,
        resources: one.resources,
        restart_policy: one.restart_policy,
        restart_policy_rules: one.restart_policy_rules,
        security_context: one.security_context,
        startup_probe: one.startup_probe,
        stdin: one.stdin,
        stdin_once: one.stdin_once,
        termination_message_path: one.termination_message_path,
        termination_message_policy: one.termination_message_policy,
        tty: one.tty,
        volume_devices: one.volume_devices,
        volume_mounts: one.volume_mounts,
        working_dir: one.working_dir,
    }
}
