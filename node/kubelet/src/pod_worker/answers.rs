//! What the answers of calls change in what a worker knows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use k8s_openapi::api::core::v1::PodStatus;
use swiftlet_model::control_plane::ControlPlaneError;
use swiftlet_model::events::{
    CREATED, EventKind, FAILED, FAILED_CREATE_POD_SANDBOX, FAILED_MOUNT, STARTED,
};
use swiftlet_model::ids::{ContainerId, ContainerName, SandboxId};
use swiftlet_model::runtime::{
    ContainerState, ContainerStatus, ProcessOf, RuntimeError, RuntimePod, SandboxState,
    SandboxStatus,
};

use swiftlet_model::volumes::VolumeError;

use crate::images::{ImageError, Present, is_of_image};
use crate::kuberuntime::actions::policy::may_restart;
use crate::kuberuntime::backoff;
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::execute::{Answer, CreateError, MadeContainer, StartPermit};
use crate::kuberuntime::hash::spec_hash;
use crate::kuberuntime::sandbox::SandboxError;
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::view::RUN_ERROR;
use crate::status::addresses::in_order_of_the_node;
use crate::status::containers::Waiting;
use crate::timeline::TimelinePhase;

impl Worker {
    pub(super) fn answer(&mut self, lane: Lane, answer: Answer) {
        let now = self.now();
        if answer.worked() {
            self.lanes.worked(&lane);
        }
        match answer {
            Answer::Cancelled => self.hook_cancelled(&lane),
            Answer::Hook(result) => self.hook_answer(&lane, result),
            Answer::Queried(Ok(found)) => self.queried(found),
            Answer::Queried(Err(error)) => {
                self.view.stale = true;
                self.failed(lane, &error, now);
            }
            Answer::Cgroup(Ok(path)) => {
                self.reached(TimelinePhase::CgroupReady, None);
                self.view.cgroup = Some(path);
            }
            Answer::Cgroup(Err(error)) | Answer::CgroupGone(Err(error)) => {
                self.failed(lane, &error, now);
            }
            Answer::Volumes(result) => self.volumes_answer(lane, result, now),
            Answer::Refreshed(Ok(())) => self.refresh_later(now),
            Answer::Configured(name, Ok(early)) => {
                self.reached(TimelinePhase::Configured, Some(name.clone()));
                self.view.early.insert(name, *early);
            }
            Answer::Configured(_, Err(error)) => self.failed(lane, &error, now),
            Answer::Hosts(ips, result) => self.hosts_answer(ips, result, now),
            Answer::Refreshed(Err(error)) => {
                self.view.refresh = true;
                self.failed(lane, &error, now);
            }
            Answer::Image(result) => self.image_answer(lane, result, now),
            Answer::Sandbox(attempt, result) => self.sandbox_answer(lane, attempt, result, now),
            Answer::Address(result) => self.address_answer(lane, result, now),
            Answer::Created(made, result) => self.created_answer(lane, &made, result, now),
            Answer::Done(result) => self.done_answer(lane, result, now),
            Answer::Record(result) => self.record_answer(&lane, result, now),
            Answer::Limited(result) => self.limits_answer(&lane, result, now),
            Answer::Probed(answer) => {
                if let Lane::Probe(key) = &lane {
                    self.probe_answer(key, answer);
                }
            }
            Answer::TornDown(logs, Ok(())) => {
                self.cleaned.volumes = true;
                self.cleaned.logs |= logs;
            }
            Answer::TornDown(_, Err(error)) => self.failed(lane, &error, now),
            Answer::CgroupGone(Ok(())) => self.cleaned.cgroup = true,
            Answer::Published(status, result) => self.published_answer(*status, result, now),
            Answer::Said(Ok(()) | Err(ControlPlaneError::Refused(_))) => self.cleaned.said = true,
            Answer::Said(Err(error)) => self.failed(lane, &error, now),
        }
    }

    fn volumes_answer(
        &mut self,
        lane: Lane,
        result: Result<BTreeMap<String, PathBuf>, VolumeError>,
        now: Instant,
    ) {
        match result {
            Ok(volumes) => {
                self.reached(TimelinePhase::VolumesReady, None);
                self.view.volumes = Some(volumes);
                self.tell_lacking();
                self.refresh_later(now);
            }
            Err(error) => {
                self.tell(None, EventKind::Warning, FAILED_MOUNT, error.to_string());
                self.failed(lane, &error, now);
            }
        }
    }

    fn published_answer(
        &mut self,
        status: PodStatus,
        result: Result<(), ControlPlaneError>,
        now: Instant,
    ) {
        match result {
            Ok(()) => {
                let at = self.shared.doors.clock.timestamp();
                self.record(TimelinePhase::StatusPublished, None, at);
                self.publisher.acknowledged(status, now);
            }
            Err(error @ ControlPlaneError::Refused(_)) => {
                tracing::warn!(pod = %self.key, %error, "status was not stored");
                self.publisher.acknowledged(status, now);
            }
            Err(ControlPlaneError::Disconnected) => self.publisher.failed(now),
        }
    }

    /// A call has failed: it is repeated, later each time.
    fn failed(&mut self, lane: Lane, error: &dyn std::error::Error, now: Instant) {
        tracing::warn!(pod = %self.key, ?lane, %error, "call failed, it will be repeated");
        self.lanes.failed(lane, now, backoff::retry);
    }

    fn image_answer(&mut self, lane: Lane, result: Result<Present, ImageError>, now: Instant) {
        let Lane::Image(name, _) = &lane else { return };
        match result {
            Ok(image) => {
                self.reached(TimelinePhase::ImageReady, Some(name.clone()));
                self.view.waiting.remove(name.as_str());
                self.view.images.insert(name.clone(), image);
            }
            Err(error) => {
                self.wait_because(name.clone(), error.reason(), error.to_string());
                let wait = if error.is_pull() {
                    backoff::pull
                } else {
                    backoff::retry
                };
                self.lanes.failed(lane, now, wait);
            }
        }
    }

    /// Shows why a container does not start; an Event goes out once per text.
    pub(super) fn wait_because(&mut self, name: ContainerName, reason: &str, message: String) {
        let waiting = Waiting {
            reason: reason.to_owned(),
            message,
        };
        let before = self.view.waiting.get(name.as_str());
        if before != Some(&waiting) {
            let text = format!(
                "Error: {}",
                // Of an image the reason is said; an Event of its own has said the rest.
                if is_of_image(reason) {
                    reason
                } else {
                    &waiting.message
                }
            );
            self.tell(Some(name.as_str()), EventKind::Warning, FAILED, text);
        }
        self.view.waiting.insert(name.to_string(), waiting);
    }

    fn sandbox_answer(
        &mut self,
        lane: Lane,
        attempt: u32,
        result: Result<SandboxId, SandboxError>,
        now: Instant,
    ) {
        let at = self.shared.doors.clock.timestamp();
        match result {
            Ok(id) => {
                self.view.sandbox_hung = false;
                self.record(TimelinePhase::SandboxUp, None, at);
                let tracker = &self.shared.doors.tracker;
                tracker.runs(&self.key.uid, &id.as_str().into(), ProcessOf::Sandbox);
                self.view.pod.sandboxes.insert(
                    0,
                    SandboxStatus {
                        id,
                        pod: self.key.clone(),
                        attempt,
                        state: SandboxState::Ready,
                        created_at: at,
                        ips: Vec::new(),
                    },
                );
            }
            Err(error) => {
                let text = format!("Failed to create pod sandbox: {error}");
                self.tell(None, EventKind::Warning, FAILED_CREATE_POD_SANDBOX, text);
                self.view.sandbox_hung = error.is_timeout();
                // It may exist, or its name may be taken: look first, and take the next number if
                // it is not there.
                if error.may_exist() {
                    let next = &mut self.view.history.next_sandbox;
                    *next = (*next).max(attempt + 1);
                }
                self.view.stale = true;
                self.failed(lane, &error, now);
                self.lanes.failed(Lane::Query, now, backoff::retry);
            }
        }
    }

    fn address_answer(
        &mut self,
        lane: Lane,
        result: Result<SandboxStatus, RuntimeError>,
        now: Instant,
    ) {
        match result {
            Ok(status) => {
                let host = host_network(self.pod());
                let ips =
                    in_order_of_the_node(&status.ips, &self.shared.node.borrow().internal_ips);
                if let Some(sandbox) = self.view.sandbox(&status.id) {
                    sandbox.ips = ips;
                    // A sandbox without an address has lost its network: it is made anew.
                    if status.state == SandboxState::NotReady || (sandbox.ips.is_empty() && !host) {
                        sandbox.state = SandboxState::NotReady;
                    }
                }
            }
            Err(error) => {
                self.view.stale |= error.is_not_found();
                self.failed(lane, &error, now);
            }
        }
    }

    fn created_answer(
        &mut self,
        lane: Lane,
        made: &MadeContainer,
        result: Result<(ContainerId, StartPermit), CreateError>,
        now: Instant,
    ) {
        let name = ContainerName::from(made.container.name.as_str());
        match result {
            Ok((id, permit)) => {
                self.view.waiting.remove(name.as_str());
                // The next start asks for the image again: it may be gone, or must be pulled anew.
                self.view.images.remove(&name);
                let text = format!("Created container: {name}");
                self.tell(Some(name.as_str()), EventKind::Normal, CREATED, text);
                self.view.pod.containers.insert(
                    0,
                    ContainerStatus {
                        id: id.clone(),
                        name: name.clone(),
                        sandbox: made.sandbox.clone(),
                        attempt: made.attempt,
                        state: ContainerState::Created,
                        created_at: self.shared.doors.clock.timestamp(),
                        started_at: None,
                        exit: None,
                        image: made.container.image.clone().unwrap_or_default(),
                        image_id: made.image_id.clone(),
                        spec_hash: Some(spec_hash(&made.container)),
                    },
                );
                if !self.ending.is_cancelled() {
                    self.launch_start(name, id, Some(permit));
                }
            }
            Err(error) => {
                let reason = match &error {
                    CreateError::Runtime(_) => "CreateContainerError",
                    _ => "CreateContainerConfigError",
                };
                self.wait_because(name.clone(), reason, error.to_string());
                if let CreateError::Runtime(error) = &error {
                    self.view.stale = true;
                    // Perhaps for want of its image, which may have been removed meanwhile.
                    self.view.images.remove(&name);
                    if matches!(error, RuntimeError::AlreadyExists { .. }) {
                        self.view.history.skip_attempt(name.as_str(), made.attempt);
                    }
                }
                self.failed(lane, &error, now);
            }
        }
    }

    fn done_answer(&mut self, lane: Lane, result: Result<(), RuntimeError>, now: Instant) {
        if let Err(error) = result {
            if let Lane::Start(name) = &lane {
                self.wait_because(name.clone(), RUN_ERROR, error.to_string());
            }
            // The effect may have happened.
            self.view.stale = true;
            self.failed(lane, &error, now);
            return;
        }
        match lane {
            Lane::Start(name) => self.started_answer(&name),
            Lane::Stop(id, _) => self.view.stopped_container(&id, now),
            Lane::Remove(id) => self.view.remove_container(&id),
            Lane::StopSandbox(id) => self.view.stopped_sandbox(&id, now),
            Lane::RemoveSandbox(id) => self.view.remove_sandbox(&id),
            _ => return,
        }
        self.forget_gone();
    }

    fn queried(&mut self, found: RuntimePod) {
        let at = self.shared.doors.clock.timestamp();
        self.view.queried(found, at);
        self.forget_gone();
        self.forget_final_starts();
    }

    /// Failures of calls about what is gone need not be remembered.
    fn forget_gone(&mut self) {
        let pod = &self.view.pod;
        self.lanes.forget(|lane| {
            let container = lane.container();
            let sandbox = lane.sandbox();
            container.is_some_and(|id| !pod.containers.iter().any(|one| one.id == *id))
                || sandbox.is_some_and(|id| !pod.sandboxes.iter().any(|one| one.id == *id))
        });
    }

    /// Of a container that is not started again a start that has failed is its end, and is shown
    /// as that.
    fn forget_final_starts(&mut self) {
        let Some(spec) = &self.order.pod.spec else {
            return;
        };
        let init = spec.init_containers.iter().flatten();
        let lasting = spec.containers.iter().chain(init);
        let lasting = lasting.filter(|one| !may_restart(spec, one));
        let debug = spec.ephemeral_containers.iter().flatten();
        let names = lasting.map(|one| &one.name);
        for name in names.chain(debug.map(|one| &one.name)) {
            let newest = self.view.history.newest(name);
            let is_over = newest.is_some_and(|one| one.state == ContainerState::Exited);
            let failed = |one: &Waiting| one.reason == RUN_ERROR;
            if is_over && self.view.waiting.get(name).is_some_and(failed) {
                self.view.waiting.remove(name);
            }
        }
    }

    fn started_answer(&mut self, name: &ContainerName) {
        let at = self.shared.doors.clock.timestamp();
        let newest = self
            .view
            .pod
            .containers
            .iter()
            .filter(|one| one.name == *name);
        let Some(id) = newest
            .max_by_key(|one| one.attempt)
            .map(|one| one.id.clone())
        else {
            return;
        };
        // The kernel may have said so already, and even that it has ended since.
        self.view.started(&id, at);
        let tracker = &self.shared.doors.tracker;
        tracker.runs(&self.key.uid, &id, ProcessOf::Container);
        self.record(TimelinePhase::StartAnswered, Some(name.clone()), at);
        let text = format!("Started container {name}");
        self.tell(Some(name.as_str()), EventKind::Normal, STARTED, text);
    }

    fn record_answer(
        &mut self,
        lane: &Lane,
        result: Result<ContainerStatus, RuntimeError>,
        now: Instant,
    ) {
        let Lane::Record(id) = lane else { return };
        match result {
            Ok(record) => self.view.recorded(record, now),
            Err(error) => {
                let at = self.shared.doors.clock.timestamp();
                self.view.record_failed(id, error.is_not_found(), (now, at));
            }
        }
    }
}
