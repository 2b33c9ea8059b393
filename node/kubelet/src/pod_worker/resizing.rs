//! What the worker does so that its containers have what they are promised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::LinuxResources;
use swiftlet_proto::pod::plain_container;
use tokio::sync::watch;

use crate::cgroups::{container_resources, qos_class};
use crate::kuberuntime::actions::ContainerStop;
use crate::kuberuntime::limits::{container_limits, pod_cgroup, pod_limits};
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::resize::{Change, ContainerChange, DEFERRED, PodChange, Resize, decide, next};
use crate::shared::Shared;

/// How soon a change that failed is tried again (kubelet's `initialRetryDelay` for resizes).
const AGAIN: Duration = Duration::from_secs(10);

/// What a worker knows of its pod's resources.
pub(crate) struct Resizing {
    pub(super) resize: Resize,
    /// Something is to be compared.
    open: bool,
    /// Not before this time.
    again: Option<Instant>,
    /// What the pod's cgroup says.
    pod_limits: Option<LinuxResources>,
    cpus: watch::Receiver<u64>,
    room: watch::Receiver<u64>,
}

impl Resizing {
    pub(super) fn new(shared: &Shared, pod: &Pod) -> Self {
        let resize = Resize::new(pod);
        Self {
            // Of containers that run already it is not known on which CPUs.
            open: shared.cpus.is_static() || resize.is_wanted(pod),
            resize,
            again: None,
            pod_limits: None,
            cpus: shared.cpus.changes(),
            room: shared.keeper.changed(),
        }
    }

    /// Looks at the pod's newest object.
    pub(super) fn look(&mut self, pod: &Pod) {
        self.open |= self.resize.is_wanted(pod) || self.resize.pending.is_some();
    }

    /// Waits for what may change the pod's resources: others leave, if it waits for that, or CPUs
    /// are shared out anew.
    pub(super) async fn news(&mut self) {
        let pending = self.resize.pending.as_ref();
        let deferred = pending.is_some_and(|pending| pending.reason == DEFERRED);
        tokio::select! {
            Ok(()) = self.cpus.changed() => {}
            Ok(()) = self.room.changed(), if deferred => {}
            else => std::future::pending().await,
        }
        self.open = true;
    }
}

impl Worker {
    /// What the pod is promised, in the place of what it asks for.
    pub(super) fn promised_pod(&self) -> Arc<Pod> {
        self.resizing.resize.allocated_pod(self.pod())
    }

    /// The container with what it is promised, and the CPUs on which it shall run.
    pub(super) fn promised_to(&self, mut container: Container) -> (Container, String) {
        let cpuset = self.shared.cpus.cpuset(&self.key.uid, &container.name);
        let pod = self.promised_pod();
        if let Some(promised) = plain_container(&pod, &container.name) {
            container.resources.clone_from(&promised.resources);
        }
        (container, cpuset)
    }

    /// The pod's cgroup is being made, with these limits.
    pub(super) fn pod_limits_launched(&mut self) {
        let limits = pod_cgroup(&self.shared, &self.promised_pod());
        self.resizing.pod_limits = Some(limits);
    }

    /// Promises what is asked for if it can be, and takes the next step towards what is promised.
    pub(super) fn resize_pass(&mut self, now: Instant) {
        if !self.resizing.open {
            return;
        }
        if let Some(at) = self.resizing.again.filter(|at| *at > now) {
            self.look.at(at);
            return;
        }
        self.resizing.again = None;
        self.promise();
        if self
            .lanes
            .any_busy(|lane| matches!(lane, Lane::PodLimits | Lane::Limits(_)))
        {
            return;
        }
        if self.view.cgroup.is_none() {
            // What is made from now on is made with what is promised.
            return;
        }
        let (pod, containers) = self.changes();
        match next(&pod, &containers) {
            None => {
                self.resizing.open = false;
                self.resizing.resize.error = None;
            }
            Some(Change::Pod(limits)) => {
                let qos = qos_class(self.pod());
                let uid = self.key.uid.clone();
                let call = pod_limits(Arc::clone(&self.shared), uid, qos, limits);
                self.lanes.launch(Lane::PodLimits, call);
            }
            Some(Change::Containers(ids)) => {
                for one in containers.into_iter().filter(|one| ids.contains(&one.id)) {
                    self.change_container(one, now);
                }
            }
        }
    }

    fn promise(&mut self) {
        if !self.resizing.resize.is_wanted(self.pod()) {
            self.resizing.resize.pending = None;
            return;
        }
        let wanted = Arc::clone(self.pod());
        let allocatable = self.shared.node.borrow().allocatable();
        let keeper = &self.shared.keeper;
        let decision = {
            // Decided and promised in one: another pod must not get it in between.
            let mut room = keeper.room();
            let static_cpus = self.shared.cpus.is_static();
            let decision = decide(&wanted, &room, &allocatable, static_cpus);
            if decision.is_ok() {
                room.take(Arc::clone(&wanted));
            }
            decision
        };
        match decision {
            Ok(()) => {
                keeper.room_changed();
                self.resizing.resize.allocate(&wanted);
            }
            Err(pending) => self.resizing.resize.pending = Some(pending),
        }
    }

    fn changes(&self) -> (PodChange, Vec<ContainerChange>) {
        let (has, wants) = (
            self.resizing.resize.actual_pod(self.pod()),
            self.resizing.resize.allocated_pod(self.pod()),
        );
        let shared = &self.shared;
        let memory = shared.node.borrow().capacity.memory_bytes;
        let limits = |pod, name: &str, cpuset: String| {
            let container = plain_container(pod, name)?;
            Some(LinuxResources {
                cpuset_cpus: cpuset,
                ..container_resources(pod, container, memory)
            })
        };
        let containers = self.view.living().filter_map(|one| {
            let name = one.name.as_str();
            let had = self
                .resizing
                .resize
                .cpusets
                .get(name)
                .cloned()
                .unwrap_or_default();
            let cpuset = shared.cpus.cpuset(&self.key.uid, name);
            Some(ContainerChange {
                id: one.id.clone(),
                has: limits(&has, name, had)?,
                wants: limits(&wants, name, cpuset)?,
            })
        });
        let known = self.resizing.pod_limits.clone();
        let pod = PodChange {
            has: known.unwrap_or_else(|| pod_cgroup(shared, &has)),
            wants: pod_cgroup(shared, &wants),
        };
        (pod, containers.collect())
    }

    fn change_container(&mut self, change: ContainerChange, now: Instant) {
        let Some(container) = self.view.container(&change.id) else {
            return;
        };
        let status = container.clone();
        let wants = self.resizing.resize.allocated_pod(self.pod());
        let Some(spec) = plain_container(&wants, status.name.as_str()) else {
            return;
        };
        if self.resizing.resize.needs_restart(spec) {
            let name = &status.name;
            let message = format!("Container {name} resize requires restart");
            let stop = ContainerStop {
                restart: true,
                ..ContainerStop::of(&status, message)
            };
            self.stop_in_sync(&stop, now);
            return;
        }
        let uid = self.key.uid.clone();
        let lane = Lane::Limits(change.id.clone());
        let call = container_limits(Arc::clone(&self.shared), uid, change);
        self.lanes.launch(lane, call);
    }

    pub(super) fn limits_answer(
        &mut self,
        lane: &Lane,
        result: Result<LinuxResources, String>,
        now: Instant,
    ) {
        match (lane, result) {
            (Lane::PodLimits, Ok(limits)) => self.resizing.pod_limits = Some(limits),
            (Lane::Limits(id), Ok(limits)) => self.container_changed(id, limits),
            (_, Err(error)) => {
                tracing::warn!(pod = %self.key, error, "limits were not changed");
                self.resizing.resize.error = Some(error);
                self.resizing.again = Some(now + AGAIN);
            }
            _ => {}
        }
    }

    fn container_changed(&mut self, id: &ContainerId, limits: LinuxResources) {
        let name = self.view.container(id).map(|one| one.name.to_string());
        if let Some(name) = name {
            // The promise may have changed while the call was in flight: the next pass sees it.
            let now_has = self.resizing.resize.allocated_pod(self.pod());
            let memory = self.shared.node.borrow().capacity.memory_bytes;
            let same = plain_container(&now_has, &name).is_some_and(|container| {
                let wants = container_resources(&now_has, container, memory);
                wants.memory_limit_bytes == limits.memory_limit_bytes
                    && wants.cpu_shares == limits.cpu_shares
                    && wants.cpu_quota_us == limits.cpu_quota_us
            });
            if same {
                self.resizing.resize.launched(&name, limits.cpuset_cpus);
            }
        }
    }
}
