//! The one word for a pod's state (Kubernetes: `printPod` in `pkg/printers/internalversion`).

use jiff::Timestamp;
use serde_json::Value;

use super::column::number_at;
use crate::strategy::{list_at, text_at};

/// What the columns READY, STATUS and RESTARTS say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodSummary {
    /// Containers that are ready.
    pub(super) ready: usize,
    /// Containers that should be: main ones and sidecars.
    pub(super) total: usize,
    /// `Running`, `Init:0/1`, `CrashLoopBackOff` …
    pub(super) reason: String,
    /// Restarts of the containers that count now.
    pub(super) restarts: i64,
    /// When one of them last ended.
    pub(super) last_restart: Option<Timestamp>,
}

/// Sums a pod up.
pub(super) fn summarize(pod: &Value) -> PodSummary {
    let sidecars = sidecars(pod);
    let mut summary = PodSummary {
        total: list_at(pod, "/spec/containers").len() + sidecars.len(),
        reason: first_reason(pod),
        ..PodSummary::default()
    };
    let mut sidecar_restarts = Restarts::default();
    let mut all_restarts = Restarts::default();
    let mut initializing = false;
    for (index, status) in list_at(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        let is_sidecar = sidecars.contains(&text_at(status, "/name"));
        all_restarts.add(status);
        if is_sidecar {
            sidecar_restarts.add(status);
        }
        if let Some(reason) = init_reason(pod, index, status, is_sidecar) {
            summary.reason = reason;
            initializing = true;
            break;
        }
        let ready = is_sidecar && runs(status) && flag(status, "ready");
        summary.ready += usize::from(ready);
    }
    let mut restarts = all_restarts;
    if !initializing || has_condition(pod, "Initialized") {
        restarts = sidecar_restarts;
        main_containers(pod, &mut summary, &mut restarts);
    }
    if !text_at(pod, "/metadata/deletionTimestamp").is_empty() {
        let terminal = ["Succeeded", "Failed"].contains(&text_at(pod, "/status/phase"));
        if text_at(pod, "/status/reason") == "NodeLost" {
            summary.reason = "Unknown".into();
        } else if !terminal {
            summary.reason = "Terminating".into();
        }
    }
    summary.restarts = restarts.count;
    summary.last_restart = restarts.last;
    summary
}

/// Whether a condition is true.
pub(super) fn has_condition(pod: &Value, kind: &str) -> bool {
    list_at(pod, "/status/conditions").iter().any(|condition| {
        text_at(condition, "/type") == kind && text_at(condition, "/status") == "True"
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count = self
            .count
            .saturating_add(number_at(status, "/restartCount"));
        let ended = text_at(status, "/lastState/terminated/finishedAt")
            .parse()
            .ok();
        self.last = self.last.max(ended);
    }
}

/// Names of init containers that go on running.
fn sidecars(pod: &Value) -> Vec<&str> {
    list_at(pod, "/spec/initContainers")
        .iter()
        .filter(|container| text_at(container, "/restartPolicy") == "Always")
        .map(|container| text_at(container, "/name"))
        .collect()
}

fn first_reason(pod: &Value) -> String {
    let gated = list_at(pod, "/status/conditions").iter().any(|condition| {
        text_at(condition, "/type") == "PodScheduled"
            && text_at(condition, "/reason") == "SchedulingGated"
    });
    let reason = match (gated, text_at(pod, "/status/reason")) {
        (true, _) => "SchedulingGated",
        (false, "") => text_at(pod, "/status/phase"),
        (false, reason) => reason,
    };
    reason.to_owned()
}

/// Why the pod is not past this init container; `None` if it is.
fn init_reason(pod: &Value, index: usize, status: &Value, is_sidecar: bool) -> Option<String> {
    let terminated = status
        .pointer("/state/terminated")
        .filter(|state| !state.is_null());
    if let Some(terminated) = terminated {
        if number_at(terminated, "/exitCode") == 0 {
            return None;
        }
        if is_sidecar && runs(status) {
            return None;
        }
        return Some(format!("Init:{}", exit_reason(terminated)));
    }
    if is_sidecar && runs(status) {
        return None;
    }
    match text_at(status, "/state/waiting/reason") {
        "" | "PodInitializing" => Some(format!(
            "Init:{index}/{}",
            list_at(pod, "/spec/initContainers").len()
        )),
        reason => Some(format!("Init:{reason}")),
    }
}

/// The runtime's reason, or the signal, or the exit code.
fn exit_reason(terminated: &Value) -> String {
    match (
        text_at(terminated, "/reason"),
        number_at(terminated, "/signal"),
    ) {
        ("", 0) => format!("ExitCode:{}", number_at(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Main containers, the last one first: the first one's reason is what counts.
fn main_containers(pod: &Value, summary: &mut PodSummary, restarts: &mut Restarts) {
    let mut any_runs = false;
    for status in list_at(pod, "/status/containerStatuses").iter().rev() {
        restarts.add(status);
        let waiting = text_at(status, "/state/waiting/reason");
        let terminated = status
            .pointer("/state/terminated")
            .filter(|state| !state.is_null());
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(terminated) = terminated {
            summary.reason = exit_reason(terminated);
        } else if flag(status, "ready") && status.pointer("/state/running").is_some() {
            any_runs = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && any_runs {
        let word = if has_condition(pod, "Ready") {
            "Running"
        } else {
            "NotReady"
        };
        word.clone_into(&mut summary.reason);
    }
}

fn flag(status: &Value, key: &str) -> bool {
    status.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn runs(status: &Value) -> bool {
    flag(status, "started")
}
