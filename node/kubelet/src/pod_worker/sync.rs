//! The pass over a pod that shall run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Container;
use swiftlet_model::events::{BACK_OFF, EventKind, KILLING, SANDBOX_CHANGED};
use swiftlet_model::ids::{ContainerName, PodUid};
use swiftlet_model::runtime::SandboxConfig;

use crate::cgroups::{cgroup_path, qos_class};
use crate::kuberuntime::actions::{
    BackingOff, ContainerStart, ContainerStop, PodActions, compute_pod_actions, ready_sandbox,
};
use crate::kuberuntime::config::{grace_period_s, host_network, sandbox_config};
use crate::kuberuntime::env::{EnvFacts, needs_pod_ip};
use crate::kuberuntime::execute::{self, CreateCall, MadeContainer};
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::Cause;
use crate::pod_worker::{GRACE_MIN, Worker};
use crate::status::containers::Waiting;

impl Worker {
    pub(super) fn sync_pass(&mut self) {
        let now = self.now();
        if !self.query_pass(now) {
            return;
        }
        self.record_pass(now);
        let timestamp = self.shared.doors.clock.timestamp();
        let actions = compute_pod_actions(
            &self.order.pod,
            &self.view.pod,
            &self.view.history,
            timestamp,
        );
        if actions.finished && !self.lanes.is_making() {
            self.view.backing_off.clear();
            self.end(Cause::Completed, now);
            return;
        }
        self.back_off(&actions.backing_off);
        self.cgroup_pass(now);
        if self.view.is_living() {
            // Of a pod that ran before this program was started, the volumes are not known yet.
            self.volumes_pass(now);
        }
        self.clear(&actions, now);
        self.address_pass(now);
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
                self.lanes.launch(lane, execute::record(&self.shared, id));
            }
        }
    }

    fn cgroup_pass(&mut self, now: Instant) {
        if self.view.cgroup.is_none() && self.lanes.is_free(&Lane::Cgroup, now) {
            let call = execute::cgroup(&self.shared, Arc::clone(self.pod()));
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

    fn back_off(&mut self, all: &[BackingOff]) {
        for back in all {
            let name = back.name.as_str();
            if self
                .view
                .backing_off
                .iter()
                .any(|before| before.name == back.name)
            {
                continue;
            }
            let message = format!(
                "Back-off restarting failed container {name} in pod {}_{}({})",
                self.key.name, self.key.namespace, self.key.uid
            );
            self.tell(Some(name), EventKind::Warning, BACK_OFF, message);
        }
        self.view.backing_off = all.to_vec();
    }

    /// Stops and removes what must not be there.
    fn clear(&mut self, actions: &PodActions, now: Instant) {
        for stop in &actions.stop {
            self.stop_in_sync(stop, now);
        }
        for id in &actions.remove {
            let lane = Lane::Remove(id.clone());
            if self.lanes.is_free(&lane, now) {
                self.lanes
                    .launch(lane, execute::remove(&self.shared, id.clone()));
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

    fn stop_in_sync(&mut self, stop: &ContainerStop, now: Instant) {
        let lane = Lane::Stop(stop.id.clone(), 0);
        if self.lanes.is_free(&lane, now) {
            let (name, message) = (stop.name.as_str(), stop.message.clone());
            self.tell(Some(name), EventKind::Normal, KILLING, message);
            let grace = u64::try_from(grace_period_s(self.pod())).unwrap_or_default();
            let grace = Duration::from_secs(grace).max(GRACE_MIN);
            self.lanes
                .launch(lane, execute::stop(&self.shared, stop.id.clone(), grace));
        }
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
            self.lanes
                .launch(lane, execute::remove_sandbox(&self.shared, id));
        }
    }

    fn make_sandbox(&mut self, attempt: u32, now: Instant) {
        if self.view.cgroup.is_some() && self.lanes.is_free(&Lane::Sandbox, now) {
            let config = self.sandbox_config(attempt);
            let call = execute::sandbox(&self.shared, config, self.ending.clone());
            self.lanes.launch(Lane::Sandbox, call);
        }
    }

    pub(super) fn sandbox_config(&self, attempt: u32) -> SandboxConfig {
        let pod = self.pod();
        let guessed = || cgroup_path(&PodUid::clone(&self.key.uid), qos_class(pod));
        let cgroup = self.view.cgroup.clone().unwrap_or_else(guessed);
        sandbox_config(pod, attempt, &self.shared.log_root, &cgroup)
    }

    /// While the sandbox is made, all that does not need it: volumes, and the images of the
    /// containers that come first.
    fn prefetch(&mut self, now: Instant) {
        self.volumes_pass(now);
        let spec = self.pod().spec.clone().unwrap_or_default();
        let first: Vec<Container> = match spec.init_containers.unwrap_or_default().first() {
            Some(init) => vec![init.clone()],
            None => spec.containers,
        };
        for container in &first {
            self.image_pass(container, now);
        }
    }

    fn volumes_pass(&mut self, now: Instant) {
        if self.view.volumes.is_none() && self.lanes.is_free(&Lane::Volumes, now) {
            let call = execute::volumes(&self.shared, Arc::clone(self.pod()));
            self.lanes.launch(Lane::Volumes, call);
        }
    }

    /// Brings ConfigMap and Secret volumes up to date.
    fn refresh_pass(&mut self, now: Instant) {
        let needed = self.view.refresh && self.view.volumes.is_some();
        if needed && self.lanes.is_free(&Lane::Refresh, now) {
            self.view.refresh = false;
            let call = execute::refresh(&self.shared, Arc::clone(self.pod()));
            self.lanes.launch(Lane::Refresh, call);
        }
    }

    fn image_pass(&mut self, container: &Container, now: Instant) {
        let name = ContainerName::from(container.name.as_str());
        if self.view.images.contains_key(&name) {
            return;
        }
        let lane = Lane::Image(name);
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

    /// Once its failure has been shown, a pull that waits is shown as waiting.
    fn pull_back_off(&mut self, container: &Container) {
        let Some(waiting) = self.view.waiting.get(&container.name) else {
            return;
        };
        if waiting.reason != "ErrImagePull" || !self.publisher.is_settled() {
            return;
        }
        let image = container.image.as_deref().unwrap_or_default();
        let text = format!("Back-off pulling image \"{image}\"");
        let message = format!("{text}: ErrImagePull: {}", waiting.message);
        let waiting = Waiting {
            reason: "ImagePullBackOff".to_owned(),
            message,
        };
        self.view.waiting.insert(container.name.clone(), waiting);
        self.tell(Some(&container.name), EventKind::Normal, BACK_OFF, text);
    }

    fn start(&mut self, start: &ContainerStart, now: Instant) {
        let spec = self.order.pod.spec.as_ref();
        let all = spec.into_iter().flat_map(|spec| {
            spec.containers
                .iter()
                .chain(spec.init_containers.iter().flatten())
        });
        let mut all = all.filter(|one| one.name == start.name.as_str());
        let Some(container) = all.next().cloned() else {
            return;
        };
        let busy = [
            Lane::Create(start.name.clone()),
            Lane::Start(start.name.clone()),
        ];
        if busy.iter().any(|lane| !self.lanes.is_free(lane, now)) {
            return;
        }
        if let Some(id) = &start.created {
            self.launch_start(start.name.clone(), id.clone(), None);
            return;
        }
        self.volumes_pass(now);
        self.image_pass(&container, now);
        let Some(volumes) = self.view.volumes.clone() else {
            return;
        };
        let pod_ips = self.pod_ips();
        if pod_ips.is_empty() && needs_pod_ip(&container) {
            return;
        }
        let Some(image_id) = self.view.images.get(&start.name).cloned() else {
            return;
        };
        let attempt = ready_sandbox(&self.view.pod).map_or(0, |sandbox| sandbox.attempt);
        let facts = self.shared.node.borrow().clone();
        let call = CreateCall {
            pod: Arc::clone(self.pod()),
            made: MadeContainer {
                container,
                sandbox: start.sandbox.clone(),
                attempt: start.attempt,
                image_id,
            },
            sandbox: self.sandbox_config(attempt),
            volumes,
            env: EnvFacts {
                node_name: self.shared.node_name.clone(),
                host_ips: facts.internal_ips.clone(),
                pod_ips,
                allocatable_cpu_milli: facts.allocatable().cpu_milli,
                allocatable_memory_bytes: facts.allocatable().memory_bytes,
            },
            memory_capacity_bytes: facts.capacity.memory_bytes,
        };
        let call = execute::create(&self.shared, call, self.ending.clone());
        self.lanes.launch(Lane::Create(start.name.clone()), call);
    }

    pub(super) fn launch_start(
        &mut self,
        name: ContainerName,
        id: swiftlet_model::ids::ContainerId,
        permit: Option<execute::StartPermit>,
    ) {
        let lane = Lane::Start(name);
        if self.lanes.is_free(&lane, self.now()) {
            let call = execute::start(&self.shared, id, permit, self.ending.clone());
            self.lanes.launch(lane, call);
        }
    }

    fn pod_ips(&self) -> Vec<String> {
        if host_network(self.pod()) {
            return self.shared.node.borrow().internal_ips.clone();
        }
        ready_sandbox(&self.view.pod)
            .map(|sandbox| sandbox.ips.clone())
            .unwrap_or_default()
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
