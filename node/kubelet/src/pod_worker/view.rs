//! What a worker knows of its pod: the runtime's answers and the kernel's hints, newest knowledge
//! first.
//!
//! States only go forward: a container that has ended has ended, whatever an older answer says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, SandboxId};
use swiftlet_model::lifecycle::KernelExit;
use swiftlet_model::runtime::{
    ContainerExit, ContainerState, ContainerStatus, RuntimePod, SandboxState, SandboxStatus,
};

use crate::kuberuntime::actions::BackingOff;
use crate::kuberuntime::history::{History, lost};
use crate::status::containers::Waiting;

/// The kernel's event comes before the runtime has reaped: half a millisecond, so ask after that.
const RECORD_DELAY: Duration = Duration::from_millis(2);
/// Longest wait before the runtime is asked again for a record.
const RECORD_DELAY_MAX: Duration = Duration::from_secs(1);
/// Times the runtime is asked for the record of an end that the kernel has reported; all in all 3
/// s.
const RECORD_TRIES_MAX: u32 = 12;

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
    /// The pod's cgroup.
    pub(crate) cgroup: Option<String>,
    /// Where the volumes lie.
    pub(crate) volumes: Option<BTreeMap<String, PathBuf>>,
    /// ConfigMap and Secret volumes may be out of date.
    pub(crate) refresh: bool,
    /// Images that are there for the next start of a container.
    pub(crate) images: HashMap<ContainerName, String>,
    /// Why containers do not start.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    /// Containers in their crash loop, as the last pass saw them.
    pub(crate) backing_off: Vec<BackingOff>,
    /// Ends whose record the runtime must still tell.
    records: HashMap<ContainerId, RecordWanted>,
}

#[derive(Clone, Copy, Debug)]
struct RecordWanted {
    tries: u32,
    not_before: Instant,
}

impl View {
    pub(crate) fn new(pod: PodKey) -> Self {
        Self {
            pod: RuntimePod::empty(pod),
            history: History::default(),
            known: false,
            stale: false,
            stopped: HashSet::new(),
            cgroup: None,
            volumes: None,
            refresh: false,
            images: HashMap::new(),
            waiting: BTreeMap::new(),
            backing_off: Vec::new(),
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
        found.pod = self.pod.pod.clone();
        self.pod = found;
        self.absorb();
        self.history.settle(&self.pod, now);
        self.known = true;
    }

    /// Keeps the history up to date.
    pub(crate) fn absorb(&mut self) {
        self.history.absorb(&self.pod);
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

    /// The kernel saw a container end. False if that was known.
    pub(crate) fn died(
        &mut self,
        id: &ContainerId,
        exit: Option<KernelExit>,
        at: Timestamp,
        now: Instant,
    ) -> bool {
        let Some(container) = self.container(id) else {
            return false;
        };
        if container.state == ContainerState::Exited {
            return false;
        }
        let Some(exit) = exit else {
            self.want_record(id, now);
            return false;
        };
        container.state = ContainerState::Exited;
        container.exit = Some(ContainerExit {
            code: exit.code,
            oom_killed: exit.oom_killed,
            at,
            reason: exit_reason(exit.code, exit.oom_killed).to_owned(),
            message: String::new(),
        });
        self.want_record(id, now + RECORD_DELAY);
        true
    }

    /// The runtime was told to stop a container and says that it has.
    pub(crate) fn stopped_container(&mut self, id: &ContainerId, now: Instant) {
        if let Some(container) = self.container(id)
            && container.state != ContainerState::Exited
        {
            container.state = ContainerState::Exited;
            self.want_record(id, now);
        }
    }

    fn want_record(&mut self, id: &ContainerId, not_before: Instant) {
        let wanted = RecordWanted {
            tries: 0,
            not_before,
        };
        self.records.entry(id.clone()).or_insert(wanted);
    }

    /// Records to ask for now. Ended containers without an exit code are among them.
    pub(crate) fn records_due(&mut self, now: Instant) -> Vec<ContainerId> {
        let bare = self.pod.containers.iter();
        let bare = bare.filter(|one| one.state == ContainerState::Exited && one.exit.is_none());
        let bare: Vec<_> = bare.map(|one| one.id.clone()).collect();
        for id in bare {
            self.want_record(&id, now);
        }
        let due = self
            .records
            .iter()
            .filter(|(_, wanted)| wanted.not_before <= now);
        due.map(|(id, _)| id.clone()).collect()
    }

    /// When the next record is to be asked for.
    pub(crate) fn record_at(&self) -> Option<Instant> {
        self.records.values().map(|wanted| wanted.not_before).min()
    }

    /// Whether all ends are told in full.
    pub(crate) fn has_all_records(&self) -> bool {
        self.records.is_empty()
    }

    /// The runtime's record of a container. The kernel's exit code stays: it is the first truth.
    pub(crate) fn recorded(&mut self, record: ContainerStatus, now: Instant) {
        let id = record.id.clone();
        let Some(known) = self.container(&id) else {
            self.records.remove(&id);
            return;
        };
        if record.state != ContainerState::Exited {
            // Either it has not been reaped yet, or the hint was wrong.
            let ended = known.exit.is_some();
            self.ask_again(&id, ended, now);
            return;
        }
        let kernel = known.exit.take();
        let mut exit = record.exit;
        if let (Some(exit), Some(kernel)) = (&mut exit, &kernel) {
            exit.code = kernel.code;
            exit.oom_killed |= kernel.oom_killed;
            if kernel.oom_killed {
                exit.reason.clone_from(&kernel.reason);
            }
        }
        known.state = ContainerState::Exited;
        known.exit = exit.or(kernel);
        known.started_at = record.started_at.or(known.started_at);
        if known.exit.is_some() {
            self.records.remove(&id);
        } else {
            self.ask_again(&id, false, now);
        }
    }

    fn ask_again(&mut self, id: &ContainerId, ended: bool, now: Instant) {
        let Some(wanted) = self.records.get_mut(id) else {
            return;
        };
        wanted.tries += 1;
        let wait = RECORD_DELAY * (1 << wanted.tries.min(RECORD_TRIES_MAX));
        wanted.not_before = now + wait.min(RECORD_DELAY_MAX);
        if wanted.tries < RECORD_TRIES_MAX {
            return;
        }
        self.records.remove(id);
        if !ended && let Some(container) = self.container(id) {
            // The runtime insists that it runs: the hint was wrong. Ask for everything.
            container.state = ContainerState::Unknown;
            self.stale = true;
        }
    }

    /// The runtime could not be asked for a record.
    pub(crate) fn record_failed(
        &mut self,
        id: &ContainerId,
        gone: bool,
        now: (Instant, Timestamp),
    ) {
        if !gone {
            if let Some(wanted) = self.records.get_mut(id) {
                wanted.not_before = now.0 + RECORD_DELAY_MAX;
            }
            return;
        }
        self.records.remove(id);
        if let Some(container) = self.container(id)
            && container.exit.is_none()
        {
            *container = lost(container.clone(), now.1);
        }
    }

    pub(crate) fn remove_container(&mut self, id: &ContainerId) {
        self.pod.containers.retain(|one| one.id != *id);
        self.records.remove(id);
    }

    /// A sandbox is gone, and its containers with it.
    pub(crate) fn remove_sandbox(&mut self, id: &SandboxId) {
        self.pod.sandboxes.retain(|one| one.id != *id);
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

/// `state.terminated.reason`.
fn exit_reason(code: i32, oom_killed: bool) -> &'static str {
    match (oom_killed, code) {
        (true, _) => "OOMKilled",
        (false, 0) => "Completed",
        (false, _) => "Error",
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
            (Some(before), Some(found)) => {
                found.code = before.code;
                if before.oom_killed {
                    found.oom_killed = true;
                    found.reason.clone_from(&before.reason);
                }
            }
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
