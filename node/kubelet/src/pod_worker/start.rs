//! Making sandboxes and containers, and what they need before.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Container;
use swiftlet_model::events::{BACK_OFF, EventKind, FAILED, FAILED_MOUNT};
use swiftlet_model::ids::{ContainerId, ContainerName, PodUid, SandboxId};
use swiftlet_model::runtime::SandboxConfig;

use crate::cgroups::{cgroup_path, qos_class};
use crate::images::{Present, is_failed_pull};
use crate::kuberuntime::actions::{ContainerStart, container_of, ready_sandbox};
use crate::kuberuntime::config::{SandboxInputs, host_network, sandbox_config};
use crate::kuberuntime::early::configured;
use crate::kuberuntime::env::{EnvFacts, needs_pod_ip};
use crate::kuberuntime::execute::{self, CreateCall, MadeContainer};
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::status::containers::Waiting;
use crate::timeline::TimelinePhase;

impl Worker {
    pub(super) fn make_sandbox(&mut self, attempt: u32, now: Instant) {
        if self.view.cgroup.is_some() && self.lanes.is_free(&Lane::Sandbox, now) {
            let config = self.sandbox_config(attempt);
            let (pod, ending) = (Arc::clone(self.pod()), self.ending.clone());
            let hung = self.view.sandbox_hung;
            let call = execute::sandbox(&self.shared, pod, config, hung, ending);
            self.reached(TimelinePhase::SandboxAsked, None);
            self.lanes.launch(Lane::Sandbox, call);
        }
    }

    pub(super) fn sandbox_config(&self, attempt: u32) -> SandboxConfig {
        let pod = self.pod();
        let guessed = || cgroup_path(&PodUid::clone(&self.key.uid), qos_class(pod));
        let cgroup = self.view.cgroup.clone().unwrap_or_else(guessed);
        let resolv_conf = self.shared.node.borrow().resolv_conf.clone();
        let inputs = SandboxInputs {
            log_root: &self.shared.log_root,
            cgroup: &cgroup,
            settings: &self.shared.pods,
            resolv_conf: resolv_conf.as_deref(),
        };
        sandbox_config(pod, attempt, &inputs)
    }

    /// While the sandbox is made, all that does not need it: volumes, and the images of the
    /// containers that come first.
    pub(super) fn prefetch(&mut self, now: Instant) {
        self.volumes_pass(now);
        let pod = Arc::clone(self.pod());
        let Some(spec) = &pod.spec else { return };
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let first = init.get(..1).unwrap_or(&spec.containers);
        for container in first {
            self.image_pass(container, now);
            self.configure_pass(container, now);
        }
    }

    /// Puts a container's configuration together, if it does not need the pod's address.
    fn configure_pass(&mut self, container: &Container, now: Instant) {
        let name = ContainerName::from(container.name.as_str());
        let known = self.view.early.contains_key(&name);
        let waits = self.pod_ips().is_empty() && needs_pod_ip(container);
        let lane = Lane::Configure(name.clone());
        if known || waits || self.view.volumes.is_none() || self.image_of(container).is_none() {
            return;
        }
        if self.lanes.is_free(&lane, now) {
            let start = ContainerStart {
                attempt: self.view.history.next_attempt(name.as_str()),
                name,
                sandbox: SandboxId::from(""),
                created: None,
                after: None,
            };
            if let Some(call) = self.create_call(&start, container.clone(), None) {
                let call = configured(&self.shared, call, self.ending.clone());
                self.lanes.launch(lane, call);
            }
        }
    }

    pub(super) fn volumes_pass(&mut self, now: Instant) {
        if self.view.volumes.is_none() && self.lanes.is_free(&Lane::Volumes, now) {
            let call = execute::volumes(&self.shared, Arc::clone(self.pod()));
            self.lanes.launch(Lane::Volumes, call);
        }
    }

    /// When the volumes are out of date by themselves.
    pub(super) fn refresh_later(&mut self, now: Instant) {
        let due = self.shared.doors.volumes.refresh_due(&self.key.uid);
        self.view.refresh_at = due.map(|due| now + due);
    }

    /// Says what the pod starts without; answers whether it does.
    pub(super) fn tell_lacking(&self) -> bool {
        let lacking = self.shared.doors.volumes.lacking(&self.key.uid);
        let Some(message) = lacking else { return false };
        tracing::warn!(pod = %self.key, "{message}");
        self.tell(None, EventKind::Warning, FAILED_MOUNT, message);
        true
    }

    /// Brings volumes up to date that show what may change.
    pub(super) fn refresh_pass(&mut self, now: Instant) {
        let is_due = self.view.refresh_at.is_some_and(|at| at <= now);
        self.look.maybe(self.view.refresh_at.filter(|_| !is_due));
        let needed = (self.view.refresh || is_due) && self.view.volumes.is_some();
        if needed && self.lanes.is_free(&Lane::Refresh, now) {
            self.view.refresh = false;
            self.view.refresh_at = None;
            let call = execute::refresh(&self.shared, Arc::clone(self.pod()));
            self.lanes.launch(Lane::Refresh, call);
        }
    }

    fn image_pass(&mut self, container: &Container, now: Instant) {
        let name = ContainerName::from(container.name.as_str());
        if self.image_of(container).is_some() {
            return;
        }
        let lane = Lane::Image(name, container.image.clone().unwrap_or_default());
        if self.lanes.is_free(&lane, now) {
            let call = execute::image(
                &self.shared,
                Arc::clone(self.pod()),
                container.clone(),
                self.sandbox_config(0),
                self.ending.clone(),
            );
            self.lanes.launch(lane, call);
        } else if self.lanes.waits(&lane, now) {
            self.pull_back_off(container);
        }
    }

    /// The container's image, if it is there for its next start.
    fn image_of(&self, container: &Container) -> Option<&Present> {
        let found = self
            .view
            .images
            .get(&ContainerName::from(container.name.as_str()));
        found.filter(|found| Some(&found.image) == container.image.as_ref())
    }

    /// Once its failure has been shown, a pull that waits is shown as waiting.
    fn pull_back_off(&mut self, container: &Container) {
        let Some(waiting) = self.view.waiting.get(&container.name) else {
            return;
        };
        if !is_failed_pull(&waiting.reason) || !self.publisher.is_settled() {
            return;
        }
        let image = container.image.as_deref().unwrap_or_default();
        let text = format!("Back-off pulling image \"{image}\"");
        let message = format!("{text}: {}: {}", waiting.reason, waiting.message);
        let waiting = Waiting {
            reason: "ImagePullBackOff".to_owned(),
            message,
        };
        self.view.waiting.insert(container.name.clone(), waiting);
        let name = Some(container.name.as_str());
        self.tell(name, EventKind::Normal, BACK_OFF, text);
        let error = "Error: ImagePullBackOff".to_owned();
        self.tell(name, EventKind::Warning, FAILED, error);
    }

    pub(super) fn start(&mut self, start: &ContainerStart, now: Instant) {
        let first = start.after.as_ref();
        if first.is_some_and(|first| !self.view.waiting.contains_key(first.as_str())) {
            return;
        }
        let Some(container) = container_of(self.pod(), start.name.as_str()) else {
            return;
        };
        let busy = [
            Lane::Create(start.name.clone()),
            Lane::Start(start.name.clone()),
        ];
        let configures = self.lanes.is_busy(&Lane::Configure(start.name.clone()));
        if configures || busy.iter().any(|lane| !self.lanes.is_free(lane, now)) {
            return;
        }
        if let Some(id) = &start.created {
            if self.lanes.is_busy(&Lane::Remove(id.clone())) {
                return;
            }
            self.launch_start(start.name.clone(), id.clone(), None);
            return;
        }
        self.volumes_pass(now);
        self.image_pass(&container, now);
        if self.view.volumes.is_none() || self.image_of(&container).is_none() {
            return;
        }
        if self.pod_ips().is_empty() && needs_pod_ip(&container) {
            return;
        }
        let target = match self.target(start) {
            Ok(target) => target,
            Err(message) => {
                let reason = "CreateContainerConfigError";
                self.wait_because(start.name.clone(), reason, message);
                return;
            }
        };
        let Some(mut call) = self.create_call(start, container, target) else {
            return;
        };
        // It is being made with these.
        let resize = &mut self.resizing.resize;
        resize.launched(start.name.as_str(), call.cpuset.clone());
        let early = self.view.early.remove(&start.name);
        call.config = early.and_then(|early| early.of(&call));
        let call = execute::create(&self.shared, call, self.ending.clone());
        self.lanes.launch(Lane::Create(start.name.clone()), call);
    }

    /// All that a container is made with, if its volumes and its image are there.
    fn create_call(
        &self,
        start: &ContainerStart,
        container: Container,
        target: Option<ContainerId>,
    ) -> Option<CreateCall> {
        let volumes = self.view.volumes.clone()?;
        let image = self.image_of(&container).cloned()?;
        let (container, cpuset) = self.promised_to(container);
        let attempt = ready_sandbox(&self.view.pod).map_or(0, |sandbox| sandbox.attempt);
        let facts = self.shared.node.borrow().clone();
        Some(CreateCall {
            pod: self.promised_pod(),
            cpuset,
            made: MadeContainer {
                container,
                sandbox: start.sandbox.clone(),
                attempt: start.attempt,
                image_id: image.id,
            },
            image_user: image.user,
            sandbox: self.sandbox_config(attempt),
            volumes,
            env: EnvFacts {
                node_name: self.shared.node_name.clone(),
                host_ips: facts.internal_ips.clone(),
                pod_ips: self.pod_ips(),
                allocatable_cpu_milli: facts.allocatable().cpu_milli,
                allocatable_memory_bytes: facts.allocatable().memory_bytes,
                allocatable_ephemeral_storage_bytes: facts.capacity.ephemeral_storage_bytes,
            },
            memory_capacity_bytes: facts.capacity.memory_bytes,
            target,
            round: self.order.referenced,
            config: None,
        })
    }

    /// The container whose processes an ephemeral container shall see, if it names one.
    fn target(&self, start: &ContainerStart) -> Result<Option<ContainerId>, String> {
        let spec = self.order.pod.spec.as_ref();
        let mut debug = spec
            .into_iter()
            .flat_map(|one| one.ephemeral_containers.iter().flatten());
        let debug = debug.find(|one| one.name == start.name.as_str());
        let Some(name) = debug.and_then(|one| one.target_container_name.as_deref()) else {
            return Ok(None);
        };
        let mine = self.view.pod.containers.iter();
        let mine = mine.filter(|one| one.name.as_str() == name && one.sandbox == start.sandbox);
        match mine.max_by_key(|one| one.attempt) {
            Some(target) => Ok(Some(target.id.clone())),
            None if name.is_empty() => Ok(None),
            None => Err(format!("unable to find target container {name}")),
        }
    }

    pub(super) fn launch_start(
        &mut self,
        name: ContainerName,
        id: ContainerId,
        permit: Option<execute::StartPermit>,
    ) {
        // The pass after it is written starts what waits for it.
        if !self.hosts_are_written() {
            return;
        }
        self.expect_hook(name.as_str(), &id);
        let lane = Lane::Start(name);
        if self.lanes.is_free(&lane, self.now()) {
            let call = execute::start(&self.shared, id, permit, self.ending.clone());
            self.lanes.launch(lane, call);
        }
    }

    pub(super) fn pod_ips(&self) -> Vec<String> {
        if host_network(self.pod()) {
            return self.shared.node.borrow().internal_ips.clone();
        }
        ready_sandbox(&self.view.pod)
            .map(|sandbox| sandbox.ips.clone())
            .unwrap_or_default()
    }
}
