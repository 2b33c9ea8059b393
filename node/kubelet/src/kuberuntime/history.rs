//! What must be remembered of a pod's containers beyond what the runtime still holds.
//!
//! It is rebuilt from the runtime's records and the API's status, so that restart counts, back-off
//! and the last state hold over a restart of this program.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use swiftlet_model::ids::{ContainerId, ContainerName, SandboxId};
use swiftlet_model::runtime::{ContainerExit, ContainerState, ContainerStatus, RuntimePod};

use crate::kuberuntime::backoff::{BACKOFF_MAX, BACKOFF_RESET, crash_loop};
use crate::kuberuntime::history::marks::Marks;

mod marks;

/// Exit code of a container whose end nobody saw: as if it was killed.
pub const UNKNOWN_EXIT_CODE: i32 = 137;
/// Reason of such an end.
pub const UNKNOWN_EXIT_REASON: &str = "ContainerStatusUnknown";
/// Records kept for a container: the newest and the one before.
const RECORDS_MAX: usize = 2;

/// The past of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    containers: BTreeMap<String, Past>,
    /// The attempt that the next sandbox gets.
    pub next_sandbox: u32,
    /// Longest wait of a crash loop on this node.
    crash_loop_max: Duration,
    /// The runtime has been looked at once.
    settled: bool,
    marks: Marks,
}

impl Default for History {
    fn default() -> Self {
        Self::new(BACKOFF_MAX)
    }
}

/// The past of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Past {
    next_attempt: u32,
    /// The attempt from which crashes are counted.
    reset_attempt: u32,
    /// Newest first.
    records: Vec<ContainerStatus>,
}

impl History {
    /// A pod of which nothing is known, on a node whose crash loops wait `crash_loop_max` at most.
    pub fn new(crash_loop_max: Duration) -> Self {
        Self {
            containers: BTreeMap::new(),
            next_sandbox: 0,
            crash_loop_max,
            settled: false,
            marks: Marks::default(),
        }
    }

    /// Learns what the API knows: of a container that the runtime has lost it is all there is.
    pub fn seed(&mut self, status: &api::PodStatus) {
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .chain(&status.ephemeral_container_statuses);
        for one in all.flatten() {
            let attempt = u32::try_from(one.restart_count).unwrap_or_default();
            // A waiting container shows its newest run as the last state, a running one the run
            // before.
            let waits = one
                .state
                .as_ref()
                .is_some_and(|state| state.waiting.is_some());
            let before = if waits {
                attempt
            } else {
                attempt.saturating_sub(1)
            };
            for (state, attempt) in [(&one.last_state, before), (&one.state, attempt)] {
                if let Some(record) = state
                    .as_ref()
                    .and_then(|state| from_api(one, state, attempt))
                {
                    self.absorb_container(&record);
                }
            }
        }
    }

    /// Learns what the runtime reports.
    pub fn absorb(&mut self, observed: &RuntimePod) {
        for sandbox in &observed.sandboxes {
            self.next_sandbox = self.next_sandbox.max(sandbox.attempt + 1);
        }
        for container in &observed.containers {
            self.absorb_container(container);
        }
        let held = |id: &ContainerId| observed.containers.iter().any(|one| one.id == *id);
        self.marks.retain(held);
    }

    /// Learns of one container.
    pub fn absorb_container(&mut self, container: &ContainerStatus) {
        let past = self
            .containers
            .entry(container.name.to_string())
            .or_default();
        past.next_attempt = past.next_attempt.max(container.attempt + 1);
        if ran_long(container) {
            past.reset_attempt = past.reset_attempt.max(container.attempt);
        }
        match past
            .records
            .iter_mut()
            .find(|record| record.attempt == container.attempt)
        {
            Some(record) if *record == *container => return,
            // Of two containers of one attempt the later one counts: it replaced the other.
            Some(record) => *record = container.clone(),
            None => past.records.push(container.clone()),
        }
        past.records
            .sort_by_key(|record| std::cmp::Reverse(record.attempt));
        past.records.truncate(RECORDS_MAX);
    }

    /// After the first look at the runtime: what it no longer holds has ended, nobody knows how.
    pub fn settle(&mut self, observed: &RuntimePod, now: Timestamp) {
        for record in self
            .containers
            .values_mut()
            .flat_map(|past| &mut past.records)
        {
            let held = observed
                .containers
                .iter()
                .any(|container| container.id == record.id);
            if !held && record.state != ContainerState::Exited {
                *record = lost(record.clone(), now);
            }
        }
        if !self.settled {
            self.settled = true;
            let max = self.crash_loop_max;
            for past in self.containers.values_mut() {
                past.count_by_gap(max);
            }
        }
    }

    /// The newest record of a container.
    pub fn newest(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers
            .get(name)
            .and_then(|past| past.records.first())
    }

    /// The record before the newest.
    pub fn previous(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers
            .get(name)
            .and_then(|past| past.records.get(1))
    }

    /// The attempt that the next container of that name gets.
    pub fn next_attempt(&self, name: &str) -> u32 {
        self.containers
            .get(name)
            .map_or(0, |past| past.next_attempt)
    }

    /// Sets a floor for the next attempt: the runtime says that the present one is taken.
    pub fn skip_attempt(&mut self, name: &str, attempt: u32) {
        let past = self.containers.entry(name.to_owned()).or_default();
        past.next_attempt = past.next_attempt.max(attempt + 1);
    }

    /// How long a container waits after the end of `attempt`.
    pub fn crash_wait(&self, name: &str, attempt: u32) -> Duration {
        let reset = self
            .containers
            .get(name)
            .map_or(0, |past| past.reset_attempt);
        // After a run that was long enough there is nothing to wait for, after the next one there
        // is: it counts as the first crash, as in kubelet's `Backoff.Next`.
        attempt
            .checked_sub(reset)
            .map_or(Duration::ZERO, |crashes| {
                crash_loop(crashes, self.crash_loop_max)
            })
    }

    /// The container's postStart hook must still run, or runs: it does not count as started.
    pub fn begin_start(&mut self, id: &ContainerId) {
        self.marks.starting.insert(id.clone());
    }

    /// The postStart hook is over, or will not run.
    pub fn end_start(&mut self, id: &ContainerId, failed: bool) {
        self.marks.starting.remove(id);
        if failed {
            self.marks.failed.insert(id.clone());
        }
    }

    /// Whether the container's postStart hook is not over: the API shows it as being created.
    pub fn is_starting(&self, id: &ContainerId) -> bool {
        self.marks.starting.contains(id)
    }

    /// All such containers.
    pub fn starting(&self) -> impl Iterator<Item = &ContainerId> {
        self.marks.starting.iter()
    }

    /// Whether the container's postStart hook has failed: it must be stopped.
    pub fn has_failed_hook(&self, id: &ContainerId) -> bool {
        self.marks.failed.contains(id)
    }

    /// The container is stopped to be started anew, whatever its exit code will be.
    pub fn doom(&mut self, id: &ContainerId) {
        self.marks.doomed.insert(id.clone());
    }

    /// Whether the container was stopped to be started anew.
    pub fn is_doomed(&self, id: &ContainerId) -> bool {
        self.marks.doomed.contains(id)
    }

    /// Whether some container of these ever was made.
    pub fn any<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        names.any(|name| self.newest(name).is_some())
    }
}

impl Past {
    /// Crashes are counted in memory; after a restart of this program the pause before the newest
    /// run tells how many there were at most: it was as long as the wait for them. Without that a
    /// container that crashed often long ago would wait long for its first new crash.
    fn count_by_gap(&mut self, max: Duration) {
        let [newest, before] = self.records.as_slice() else {
            return;
        };
        let ended = before.exit.as_ref().map(|exit| exit.at);
        let (Some(ended), Some(started)) = (ended, newest.started_at) else {
            return;
        };
        if before.attempt + 1 != newest.attempt {
            return;
        }
        // The API keeps whole seconds.
        let gap = Duration::try_from(started.duration_since(ended)).unwrap_or_default()
            + Duration::from_secs(1);
        let counted = (0..before.attempt).find(|crashes| crash_loop(crashes + 1, max) > gap);
        if let Some(counted) = counted {
            self.reset_attempt = self.reset_attempt.max(before.attempt - counted);
        }
    }
}

/// A container that is gone without a record of its end.
pub fn lost(mut container: ContainerStatus, now: Timestamp) -> ContainerStatus {
    container.state = ContainerState::Exited;
    container.exit = Some(ContainerExit {
        code: UNKNOWN_EXIT_CODE,
        oom_killed: false,
        at: now,
        reason: UNKNOWN_EXIT_REASON.to_owned(),
        message: "The container could not be located when the pod was terminated".to_owned(),
    });
    container
}

fn ran_long(container: &ContainerStatus) -> bool {
    match (container.started_at, &container.exit) {
        (Some(started), Some(exit)) => {
            let ran = exit.at.duration_since(started);
            ran >= jiff::SignedDuration::try_from(BACKOFF_RESET).unwrap_or_default()
        }
        _ => false,
    }
}

/// A record from what the API remembers; `None` if there was no container.
fn from_api(
    status: &api::ContainerStatus,
    state: &api::ContainerState,
    attempt: u32,
) -> Option<ContainerStatus> {
    let bare = |id: &str| id.rsplit("://").next().unwrap_or_default().to_owned();
    let mut record = ContainerStatus {
        id: ContainerId::from(bare(status.container_id.as_deref().unwrap_or_default())),
        name: ContainerName::from(status.name.as_str()),
        sandbox: SandboxId::from(""),
        attempt,
        state: ContainerState::Unknown,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        exit: None,
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        spec_hash: None,
    };
    if let Some(terminated) = &state.terminated {
        record.id = ContainerId::from(bare(terminated.container_id.as_deref().unwrap_or_default()));
        record.state = ContainerState::Exited;
        record.started_at = terminated.started_at.as_ref().map(|time| time.0);
        let reason = terminated.reason.clone().unwrap_or_default();
        record.exit = Some(ContainerExit {
            code: terminated.exit_code,
            oom_killed: reason == "OOMKilled",
            at: terminated
                .finished_at
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            reason,
            message: terminated.message.clone().unwrap_or_default(),
        });
        return Some(record);
    }
    let running = state.running.as_ref()?;
    record.started_at = running.started_at.as_ref().map(|time| time.0);
    Some(record)
}

#[cfg(test)]
mod tests;
