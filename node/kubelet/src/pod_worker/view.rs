//! What a worker knows of its pod: the runtime's answers and the kernel's hints, newest knowledge
//! first.
//!
//! States only go forward: a container that has ended has ended, whatever an older answer says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, SandboxId};
use swiftlet_model::runtime::{
    ContainerState, ContainerStatus, RuntimePod, SandboxState, SandboxStatus,
};

use crate::images::Present;
use crate::kuberuntime::actions::BackingOff;
use crate::kuberuntime::early::Early;
use crate::kuberuntime::history::History;
use crate::pod_worker::stop::Stopping;
use crate::pod_worker::view::records::RecordWanted;
use crate::prober::results::ProbeResults;
use crate::prober::schedule::Schedule;
use crate::status::containers::Waiting;

mod records;

/// `state.waiting.reason` of a container that the runtime could not start (`ErrRunContainer` in
/// `pkg/kubelet/container/sync_result.go`).
pub(crate) const RUN_ERROR: &str = "RunContainerError";

/// What a worker knows.
pub(crate) struct View {
    /// What the runtime holds, as far as it is known.
    pub(crate) pod: RuntimePod,
    /// What was before.
    pub(crate) history: History,
    /// The runtime was asked once, or is known to hold nothing.
    pub(crate) known: bool,
    /// The runtime must be asked.
    pub(crate) stale: bool,
    /// Sandboxes that have been stopped: their network is released.
    pub(crate) stopped: HashSet<SandboxId>,
    /// The last try to make a sandbox was not answered in time.
    pub(crate) sandbox_hung: bool,
    /// The pod's cgroup.
    pub(crate) cgroup: Option<String>,
    /// Where the volumes lie.
    pub(crate) volumes: Option<BTreeMap<String, PathBuf>>,
    /// Volumes that show what may change may be out of date.
    pub(crate) refresh: bool,
    /// When they are out of date by themselves.
    pub(crate) refresh_at: Option<Instant>,
    /// The addresses for which the table of hosts was written.
    pub(crate) hosts: Option<Vec<String>>,
    /// Images that are there for the next start of a container.
    pub(crate) images: HashMap<ContainerName, Present>,
    /// Configurations of containers, made while the sandbox was.
    pub(crate) early: HashMap<ContainerName, Early>,
    /// Why containers do not start.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    /// Containers in their crash loop, as the last pass saw them.
    pub(crate) backing_off: Vec<BackingOff>,
    /// Containers that are being stopped.
    pub(crate) stopping: HashMap<ContainerId, Stopping>,
    /// What the probes have found.
    pub(crate) probes: ProbeResults,
    /// When they are made.
    pub(crate) schedule: Schedule,
    /// Ends that came with a look at everything.
    unread: HashSet<ContainerId>,
    /// Ends whose record the runtime must still tell.
    records: HashMap<ContainerId, RecordWanted>,
}

impl View {
    pub(crate) fn new(pod: PodKey, now: Timestamp, crash_loop_max: Duration) -> Self {
        Self {
            pod: RuntimePod::empty(pod),
            history: History::new(crash_loop_max),
            known: false,
            stale: false,
            stopped: HashSet::new(),
            sandbox_hung: false,
            cgroup: None,
            volumes: None,
            refresh: false,
            refresh_at: None,
            hosts: None,
            images: HashMap::new(),
            early: HashMap::new(),
            waiting: BTreeMap::new(),
            backing_off: Vec::new(),
            stopping: HashMap::new(),
            probes: ProbeResults::default(),
            schedule: Schedule::new(now),
            unread: HashSet::new(),
            records: HashMap::new(),
        }
    }

    /// The runtime has told all that it holds.
    pub(crate) fn queried(&mut self, mut found: RuntimePod, now: Timestamp) {
        for container in &mut found.containers {
            if let Some(before) = self
                .pod
                .containers
                .iter()
                .find(|one| one.id == container.id)
            {
                keep_newer(before, container);
            }
        }
        for sandbox in &mut found.sandboxes {
            if let Some(before) = self.pod.sandboxes.iter().find(|one| one.id == sandbox.id) {
                keep_newer_sandbox(before, sandbox);
            }
        }
        self.find_unread(&found);
        found.pod = self.pod.pod.clone();
        self.pod = found;
        self.absorb();
        self.forget_failed_starts();
        let held = |id: &SandboxId| self.pod.sandboxes.iter().any(|one| one.id == *id);
        self.stopped.retain(held);
        self.history.settle(&self.pod, now);
        self.known = true;
    }

    /// A start that has failed may have worked all the same.
    fn forget_failed_starts(&mut self) {
        let all = self.pod.containers.iter();
        for one in all.filter(|one| one.state == ContainerState::Running) {
            let failed = self.waiting.get(one.name.as_str());
            if failed.is_some_and(|waiting| waiting.reason == RUN_ERROR) {
                self.waiting.remove(one.name.as_str());
            }
        }
    }

    /// Ends that nobody has seen: what the containers left behind must still be read.
    fn find_unread(&mut self, found: &RuntimePod) {
        let ended = found.containers.iter();
        for one in ended.filter(|one| one.state == ContainerState::Exited) {
            let name = one.name.as_str();
            let past = [self.history.newest(name), self.history.previous(name)];
            let mut known = past.into_iter().flatten().chain(&self.pod.containers);
            if !known.any(|known| known.id == one.id && known.state == ContainerState::Exited) {
                self.unread.insert(one.id.clone());
            }
        }
    }

    /// Keeps the history up to date.
    pub(crate) fn absorb(&mut self) {
        self.history.absorb(&self.pod);
        if !self.stopping.is_empty() {
            let living: HashSet<_> = self.living().map(|one| one.id.clone()).collect();
            self.stopping.retain(|id, _| living.contains(id));
        }
    }

    pub(crate) fn container(&mut self, id: &ContainerId) -> Option<&mut ContainerStatus> {
        self.pod.containers.iter_mut().find(|one| one.id == *id)
    }

    pub(crate) fn sandbox(&mut self, id: &SandboxId) -> Option<&mut SandboxStatus> {
        self.pod.sandboxes.iter_mut().find(|one| one.id == *id)
    }

    /// Whether a process of some container may run.
    pub(crate) fn is_living(&self) -> bool {
        self.living().next().is_some()
    }

    /// Containers whose processes may run.
    pub(crate) fn living(&self) -> impl Iterator<Item = &ContainerStatus> {
        let living = [ContainerState::Running, ContainerState::Unknown];
        self.pod
            .containers
            .iter()
            .filter(move |one| living.contains(&one.state))
    }

    /// A container runs. False if that was known, or is over.
    pub(crate) fn started(&mut self, id: &ContainerId, at: Timestamp) -> bool {
        let Some(container) = self.container(id) else {
            return false;
        };
        container.started_at.get_or_insert(at);
        if container.state != ContainerState::Created {
            return false;
        }
        container.state = ContainerState::Running;
        let name = container.name.to_string();
        self.waiting.remove(&name);
        true
    }

    pub(crate) fn remove_container(&mut self, id: &ContainerId) {
        self.pod.containers.retain(|one| one.id != *id);
        self.records.remove(id);
        self.unread.remove(id);
    }

    /// A sandbox is gone, and its containers with it.
    pub(crate) fn remove_sandbox(&mut self, id: &SandboxId) {
        self.pod.sandboxes.retain(|one| one.id != *id);
        self.stopped.remove(id);
        let gone = self.pod.containers.iter().filter(|one| one.sandbox == *id);
        let gone: Vec<_> = gone.map(|one| one.id.clone()).collect();
        for container in gone {
            self.remove_container(&container);
        }
    }

    /// A sandbox has stopped, and everything in it.
    pub(crate) fn stopped_sandbox(&mut self, id: &SandboxId, now: Instant) {
        self.stopped.insert(id.clone());
        if let Some(sandbox) = self.sandbox(id) {
            sandbox.state = SandboxState::NotReady;
        }
        let inside = self.pod.containers.iter().filter(|one| one.sandbox == *id);
        let living = [ContainerState::Running, ContainerState::Unknown];
        let inside = inside.filter(|one| living.contains(&one.state));
        let inside: Vec<_> = inside.map(|one| one.id.clone()).collect();
        for container in inside {
            self.stopped_container(&container, now);
        }
    }
}

fn keep_newer(before: &ContainerStatus, found: &mut ContainerStatus) {
    let rank = |state: &ContainerState| match state {
        ContainerState::Unknown => 0,
        ContainerState::Created => 1,
        ContainerState::Running => 2,
        ContainerState::Exited => 3,
    };
    if rank(&before.state) > rank(&found.state) {
        found.state = before.state.clone();
    }
    if found.state == ContainerState::Exited {
        match (&before.exit, &mut found.exit) {
            (Some(before), None) => found.exit = Some(before.clone()),
            (Some(before), Some(found)) => records::keep_first(before, found),
            (None, _) => {}
        }
    }
    found.started_at = found.started_at.or(before.started_at);
}

fn keep_newer_sandbox(before: &SandboxStatus, found: &mut SandboxStatus) {
    if before.state == SandboxState::NotReady {
        found.state = SandboxState::NotReady;
    }
    if found.ips.is_empty() {
        found.ips.clone_from(&before.ips);
    }
}
