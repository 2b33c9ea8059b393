//! `status.containerStatuses`. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus as ApiStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use swiftlet_model::runtime::{ContainerExit, ContainerState, ContainerStatus};

use crate::kuberuntime::actions::BackingOff;
use crate::kuberuntime::backoff;
use crate::kuberuntime::history::{History, UNKNOWN_EXIT_CODE, UNKNOWN_EXIT_REASON, lost};

/// Why a container has not been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `state.waiting.reason`.
    pub reason: String,
    /// `state.waiting.message`.
    pub message: String,
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
    /// Name of the runtime, the prefix of ids.
    pub runtime_name: &'a str,
    /// The pod has init containers that are not done.
    pub initialising: bool,
    /// Nothing will be started again: what never ended is lost.
    pub ended: bool,
    /// The wall clock.
    pub now: Timestamp,
}

/// The statuses of these containers, sorted by name; init containers stay in their order.
pub fn statuses(
    containers: &[Container],
    init: bool,
    facts: &ContainerFacts<'_>,
) -> Vec<ApiStatus> {
    let mut all: Vec<ApiStatus> = containers
        .iter()
        .map(|container| status(container, init, facts))
        .collect();
    if !init {
        all.sort_by(|left, right| left.name.cmp(&right.name));
    }
    all
}

/// A time as the API keeps it: whole seconds. Statuses are compared with what the API has stored.
pub fn api_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn status(container: &Container, init: bool, facts: &ContainerFacts<'_>) -> ApiStatus {
    let name = container.name.as_str();
    let newest = facts.history.newest(name);
    let lost_now = newest.filter(|one| facts.ended && one.state != ContainerState::Exited);
    let lost_now = lost_now.map(|one| lost(one.clone(), facts.now));
    let newest = lost_now.as_ref().or(newest);
    let mut status = ApiStatus {
        name: name.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        ..ApiStatus::default()
    };
    let previous = facts.history.previous(name);
    let Some(record) = newest else {
        status.state = Some(never_made(name, init, facts));
        return status;
    };
    status.restart_count = i32::try_from(record.attempt).unwrap_or(i32::MAX);
    status.image.clone_from(&record.image);
    status.image_id.clone_from(&record.image_id);
    status.container_id = Some(full_id(record, facts)).filter(|id| !id.is_empty());
    status.last_state = previous.and_then(|one| terminated(one, facts));
    match record.state {
        ContainerState::Running => {
            status.ready = !init;
            status.started = Some(true);
            let started_at = record.started_at.map(api_time);
            status.state = Some(ApiState {
                running: Some(ContainerStateRunning { started_at }),
                ..ApiState::default()
            });
        }
        ContainerState::Exited => {
            let well = record.exit.as_ref().is_some_and(|exit| exit.code == 0);
            status.ready = init && well;
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

/// A container that never existed.
fn never_made(name: &str, init: bool, facts: &ContainerFacts<'_>) -> ApiState {
    if let Some(waiting) = waiting(name, facts).filter(|_| !facts.ended) {
        return waiting;
    }
    let reason = match facts.initialising && !init {
        true => "PodInitializing",
        false if facts.initialising => "PodInitializing",
        false => "ContainerCreating",
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
