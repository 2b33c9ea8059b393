//! `status.containerStatuses`. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus as ApiStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use swiftlet_model::runtime::{ContainerExit, ContainerState, ContainerStatus};
use swiftlet_proto::pod::is_sidecar;

use crate::kuberuntime::actions::BackingOff;
use crate::kuberuntime::backoff;
use crate::kuberuntime::history::{History, UNKNOWN_EXIT_CODE, UNKNOWN_EXIT_REASON, lost};
use crate::prober::results::ProbeResults;

/// Why a container has not been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `state.waiting.reason`.
    pub reason: String,
    /// `state.waiting.message`.
    pub message: String,
}

/// Which of a pod's lists a container is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `spec.initContainers`, sidecars among them.
    Init,
    /// `spec.containers`.
    Main,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

/// What the statuses are made from.
#[derive(Clone, Copy, Debug)]
pub struct ContainerFacts<'a> {
    /// `namespace_name(uid)` is part of some messages.
    pub pod: &'a swiftlet_model::ids::PodKey,
    /// All records.
    pub history: &'a History,
    /// Failures by container.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Containers in their crash loop.
    pub backing_off: &'a [BackingOff],
    /// What the probes have found.
    pub probes: &'a ProbeResults,
    /// Name of the runtime, the prefix of ids.
    pub runtime_name: &'a str,
    /// The pod has init containers.
    pub initialising: bool,
    /// Nothing will be started again: what never ended is lost.
    pub ended: bool,
    /// The wall clock.
    pub now: Timestamp,
}

/// The statuses of these containers, the main ones sorted by name, the others in their order.
pub fn statuses(
    containers: &[Container],
    role: Role,
    facts: &ContainerFacts<'_>,
) -> Vec<ApiStatus> {
    let mut all: Vec<ApiStatus> = containers
        .iter()
        .map(|container| status(container, role, facts))
        .collect();
    if role == Role::Main {
        all.sort_by(|left, right| left.name.cmp(&right.name));
    }
    all
}

/// A time as the API keeps it: whole seconds. Statuses are compared with what the API has stored.
pub fn api_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn status(container: &Container, role: Role, facts: &ContainerFacts<'_>) -> ApiStatus {
    let name = container.name.as_str();
    let newest = facts.history.newest(name);
    let lost_now = newest.filter(|one| facts.ended && one.state != ContainerState::Exited);
    let lost_now = lost_now.map(|one| lost(one.clone(), facts.now));
    let newest = lost_now.as_ref().or(newest);
    let mut status = ApiStatus {
        name: name.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        started: (role != Role::Ephemeral).then_some(false),
        ..ApiStatus::default()
    };
    let previous = facts.history.previous(name);
    let Some(record) = newest else {
        status.state = Some(never_made(name, facts));
        return status;
    };
    status.restart_count = i32::try_from(record.attempt).unwrap_or(i32::MAX);
    status.image.clone_from(&record.image);
    status.image_id.clone_from(&record.image_id);
    status.container_id = Some(full_id(record, facts)).filter(|id| !id.is_empty());
    status.last_state = previous.and_then(|one| terminated(one, facts));
    resources(container, &mut status);
    match shown_state(record) {
        // Until its postStart hook is over a container is still being made.
        ContainerState::Running if facts.history.is_starting(&record.id) => {
            let creating = || state_waiting("ContainerCreating", None);
            status.state = Some(waiting(name, facts).unwrap_or_else(creating));
        }
        ContainerState::Running => {
            probed(container, role, record, facts, &mut status);
            let started_at = record.started_at.map(api_time);
            status.state = Some(ApiState {
                running: Some(ContainerStateRunning { started_at }),
                ..ApiState::default()
            });
        }
        ContainerState::Exited => {
            let well = record.exit.as_ref().is_some_and(|exit| exit.code == 0);
            status.ready = well && role == Role::Init && !is_sidecar(container);
            let ended = terminated(record, facts);
            match waiting(name, facts) {
                Some(waiting) if !facts.ended => {
                    status.state = Some(waiting);
                    status.last_state = ended;
                }
                _ => status.state = ended,
            }
        }
        ContainerState::Created => {
            let creating = || state_waiting("ContainerCreating", None);
            status.state = Some(waiting(name, facts).unwrap_or_else(creating));
        }
        ContainerState::Unknown => {
            status.state = Some(state_waiting("ContainerStatusUnknown", None));
        }
    }
    status
}

/// The state to show. Of an end whose record the runtime has not told yet nothing is known: the
/// container is shown as before, for the instant until it is told.
fn shown_state(record: &ContainerStatus) -> ContainerState {
    match (&record.state, &record.exit, record.started_at) {
        (ContainerState::Exited, None, Some(_)) => ContainerState::Running,
        (ContainerState::Exited, None, None) => ContainerState::Created,
        (state, ..) => state.clone(),
    }
}

/// How a running container is. An init container that ends is never ready while it runs.
fn probed(
    container: &Container,
    role: Role,
    record: &ContainerStatus,
    facts: &ContainerFacts<'_>,
    status: &mut ApiStatus,
) {
    let stays = role == Role::Main || (role == Role::Init && is_sidecar(container));
    if role != Role::Ephemeral {
        status.started = Some(facts.probes.started(container, &record.id));
    }
    status.ready = stays && facts.probes.ready(container, &record.id);
}

/// What the container was given.
fn resources(container: &Container, status: &mut ApiStatus) {
    let given = container.resources.clone().unwrap_or_default();
    status.allocated_resources.clone_from(&given.requests);
    status.resources = Some(given);
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.map(|mount| {
        let read_only = mount.read_only == Some(true);
        // A container that demands more is not made.
        let recursive = read_only.then(|| "Disabled".to_owned());
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: recursive,
        }
    });
    let mounts: Vec<_> = mounts.collect();
    status.volume_mounts = Some(mounts).filter(|mounts| !mounts.is_empty());
}

/// A container that never existed.
fn never_made(name: &str, facts: &ContainerFacts<'_>) -> ApiState {
    if let Some(waiting) = waiting(name, facts).filter(|_| !facts.ended) {
        return waiting;
    }
    let reason = if facts.initialising {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    state_waiting(reason, None)
}

fn waiting(name: &str, facts: &ContainerFacts<'_>) -> Option<ApiState> {
    if let Some(waiting) = facts.waiting.get(name) {
        return Some(state_waiting(
            &waiting.reason,
            Some(waiting.message.clone()),
        ));
    }
    let back = facts
        .backing_off
        .iter()
        .find(|one| one.name.as_str() == name)?;
    let pod = facts.pod;
    let message = format!(
        "back-off {} restarting failed container={name} pod={}_{}({})",
        go_duration(back.wait.min(backoff::BACKOFF_MAX)),
        pod.name,
        pod.namespace,
        pod.uid
    );
    Some(state_waiting("CrashLoopBackOff", Some(message)))
}

fn state_waiting(reason: &str, message: Option<String>) -> ApiState {
    let waiting = ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message,
    };
    ApiState {
        waiting: Some(waiting),
        ..ApiState::default()
    }
}

fn terminated(record: &ContainerStatus, facts: &ContainerFacts<'_>) -> Option<ApiState> {
    if record.state != ContainerState::Exited {
        return None;
    }
    let unknown = ContainerExit {
        code: UNKNOWN_EXIT_CODE,
        oom_killed: false,
        at: facts.now,
        reason: UNKNOWN_EXIT_REASON.to_owned(),
        message: String::new(),
    };
    let exit = record.exit.as_ref().unwrap_or(&unknown);
    let terminated = ContainerStateTerminated {
        container_id: Some(full_id(record, facts)).filter(|id| !id.is_empty()),
        exit_code: exit.code,
        finished_at: Some(api_time(exit.at)),
        message: Some(exit.message.clone()).filter(|message| !message.is_empty()),
        reason: Some(exit.reason.clone()).filter(|reason| !reason.is_empty()),
        signal: None,
        started_at: record.started_at.map(api_time),
    };
    Some(ApiState {
        terminated: Some(terminated),
        ..ApiState::default()
    })
}

fn full_id(record: &ContainerStatus, facts: &ContainerFacts<'_>) -> String {
    match record.id.as_str() {
        "" => String::new(),
        id => format!("{}://{id}", facts.runtime_name),
    }
}

/// A duration in whole seconds as Go prints it: `10s`, `1m20s`, `5m0s`.
fn go_duration(duration: std::time::Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}
