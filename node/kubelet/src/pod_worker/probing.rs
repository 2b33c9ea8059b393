//! Probes as calls of the worker: which are due, and what their answers change.

use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Probe};
use swiftlet_model::events::EventKind;
use swiftlet_model::ids::ContainerId;
use swiftlet_model::probes::ProbeAnswer;

use crate::kuberuntime::execute::{self, ProbeCall};
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::Phase;
use crate::prober::check::{Check, EVENT_BYTES_MAX, cut};
use crate::prober::schedule::{ProbeKey, Running, limit, probe_of, probed};

/// Reason of the Event about a probe that failed (`ContainerUnhealthy` in
/// `pkg/kubelet/events/event.go`).
const UNHEALTHY: &str = "Unhealthy";
/// Reason of the Event about a probe that passed, with doubts (`ContainerProbeWarning`).
const PROBE_WARNING: &str = "ProbeWarning";

impl Worker {
    /// Plans the probes of what runs, and makes those that are due.
    pub(super) fn probe_pass(&mut self) {
        let ending = match self.phase {
            Phase::Sync => false,
            Phase::Terminating(_) => true,
            Phase::Terminated(_) | Phase::Finished => {
                self.view.schedule.clear();
                return;
            }
        };
        let now = self.now();
        self.view.schedule.follow(&Running {
            pod: &self.order.pod,
            observed: &self.view.pod,
            ending,
            now,
            timestamp: self.shared.doors.clock.timestamp(),
        });
        if self.view.known {
            let held = &self.view.pod.containers;
            let is_held = |id: &ContainerId| held.iter().any(|one| one.id == *id);
            self.view.probes.retain(is_held);
        }
        let due: Vec<ProbeKey> = self
            .open_probes()
            .filter(|(_, due)| *due <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.view.schedule.begun(&key, now);
            self.probe(key);
        }
        let next = self.open_probes().map(|(_, due)| due).min();
        self.look.maybe(next);
    }

    /// Probes that can be made: the last answer is there, and the pod's address is known.
    fn open_probes(&self) -> impl Iterator<Item = (&ProbeKey, Instant)> {
        let pod = self.order.pod.as_ref();
        let reachable = !self.pod_ips().is_empty();
        let open = self.view.schedule.open(pod, &self.view.probes);
        open.filter(move |(key, _)| {
            let inside = self
                .probe_spec(key)
                .is_some_and(|(_, probe)| probe.exec.is_some());
            let free = !self.lanes.is_busy(&Lane::Probe((*key).clone()));
            // A container whose postStart hook runs is not asked yet.
            free && (reachable || inside) && !self.view.history.is_starting(&key.id)
        })
    }

    fn probe_spec(&self, key: &ProbeKey) -> Option<(&Container, &Probe)> {
        let name = self.view.schedule.container(key)?;
        let container = probed(&self.order.pod).find(|one| one.name == name)?;
        Some((container, probe_of(container, key.kind)?))
    }

    fn probe(&mut self, key: ProbeKey) {
        let pod_ip = self.pod_ips().into_iter().next().unwrap_or_default();
        let Some((container, probe)) = self.probe_spec(&key) else {
            return;
        };
        match Check::of(probe, container, &pod_ip) {
            Ok(check) => {
                let call = ProbeCall {
                    id: key.id.clone(),
                    check,
                    limit: limit(probe),
                };
                let call = execute::probe(&self.shared, call);
                self.lanes.launch(Lane::Probe(key), call);
            }
            Err(error) => self.probe_answer(&key, ProbeAnswer::Unknown(error.to_string())),
        }
    }

    pub(super) fn probe_answer(&mut self, key: &ProbeKey, answer: ProbeAnswer) {
        let now = self.now();
        let Some(name) = self.view.schedule.container(key).map(str::to_owned) else {
            // The container has ended since.
            return;
        };
        let title = key.kind.title();
        let is_early = self.view.schedule.is_early(key);
        let (passed, event) = match answer {
            ProbeAnswer::Success(_) => (Some(true), None),
            ProbeAnswer::Warning(said) => {
                let text = format!("{title} probe warning: {said}");
                (Some(true), Some((PROBE_WARNING, text)))
            }
            ProbeAnswer::Failure(said) => {
                let text = format!("{title} probe failed: {said}");
                (Some(false), Some((UNHEALTHY, text)))
            }
            ProbeAnswer::Unknown(said) => {
                let text = format!("{title} probe errored and resulted in unknown state: {said}");
                (None, Some((UNHEALTHY, text)))
            }
        };
        let event = event.filter(|_| passed == Some(true) || !is_early);
        if let Some((reason, text)) = event {
            let text = cut(text, EVENT_BYTES_MAX);
            self.tell(Some(&name), EventKind::Warning, reason, text);
        }
        if let Some(passed) = passed {
            let (schedule, probes) = (&mut self.view.schedule, &mut self.view.probes);
            if schedule.answered(key, passed, probes, now) {
                tracing::debug!(pod = %self.key, container = name, probe = title, passed, "probed");
            }
        }
    }
}
