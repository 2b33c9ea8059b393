//! What the API shows of the pod: made after each pass, sent if it differs.

use k8s_openapi::api::core::v1::PodStatus;
use swiftlet_model::ids::ContainerId;

use crate::kuberuntime::actions::{container_of, ready_sandbox};
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::execute;
use crate::kuberuntime::last_words::LastWords;
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::phase::{Cause, Phase};
use crate::pod_worker::queue::Wish;
use crate::resize::Shown;
use crate::status::generate::{StatusFacts, generate};

impl Worker {
    pub(super) fn show(&mut self) {
        if !self.may_publish() {
            return;
        }
        let now = self.now();
        self.publisher.repair(now);
        if let Some(status) = self.status() {
            self.publisher.want(status, now);
        }
        self.place.post(&self.order.pod, self.publisher.newest());
        if let Some((status, urgent)) = self.publisher.take(now) {
            let call = execute::publish(&self.shared, self.key.clone(), status, urgent);
            self.lanes.launch(Lane::Publish, call);
        }
        self.look.maybe(self.publisher.due());
    }

    /// Where an ended container's last words are.
    pub(super) fn last_words(&self, id: &ContainerId) -> Option<LastWords> {
        let record = self.view.pod.containers.iter().find(|one| one.id == *id)?;
        let container = container_of(self.pod(), record.name.as_str())?;
        let root = &self.shared.log_root;
        Some(LastWords::of(self.pod(), &container, record.attempt, root))
    }

    /// There is nothing to say of a pod whose object is gone, or may be.
    pub(super) fn may_publish(&self) -> bool {
        let cause = self.phase.ending().map(|ending| ending.cause);
        let said = self.cleaned.said || self.lanes.is_busy(&Lane::PodGone);
        cause != Some(Cause::Vanished) && !said
    }

    /// The status, if enough is known for one.
    fn status(&self) -> Option<PodStatus> {
        let rejection = match &self.order.wish {
            Wish::Reject(rejection) => Some(rejection),
            _ => None,
        };
        let knows_runtime = self.shared.known_runtime_name();
        if rejection.is_none() {
            if !self.view.known {
                return None;
            }
            if !self.view.pod.containers.is_empty() && knows_runtime.is_none() {
                return None;
            }
            if self.phase == Phase::Sync && self.address_is_coming() {
                return None;
            }
        }
        let cleaning = matches!(self.phase, Phase::Terminated(_));
        if cleaning
            && self
                .phase
                .ending()
                .is_some_and(|one| one.cause.is_leaving())
        {
            // The records are being removed: what was said last stays said.
            let over = self.publisher.newest().phase.as_deref();
            if crate::status::phase::PodPhase::terminal(over).is_some() {
                return None;
            }
        }
        let host_ips = self.shared.node.borrow().internal_ips.clone();
        let mut status = generate(&StatusFacts {
            pod: &self.promised_pod(),
            observed: &self.view.pod,
            history: &self.view.history,
            waiting: &self.view.waiting,
            backing_off: &self.view.backing_off,
            probes: &self.view.probes,
            previous: self.publisher.newest(),
            rejection,
            failure: self.failure.as_ref(),
            host_ips: &host_ips,
            runtime_name: knows_runtime.unwrap_or_default(),
            ended: self.has_ended(),
            now: self.shared.doors.clock.timestamp(),
        });
        if rejection.is_none() {
            let shown = Shown {
                resize: &self.resizing.resize,
                previous: self.publisher.newest(),
                generation: self.pod().metadata.generation,
                now: self.shared.doors.clock.timestamp(),
            };
            shown.put_in(&mut status);
        }
        Some(status)
    }

    /// A pod is over when it ends and nothing of it runs or is being made.
    fn has_ended(&self) -> bool {
        self.phase != Phase::Sync
            && self.view.known
            && !self.view.is_living()
            && !self.lanes.is_making()
            && self.view.has_all_records()
    }

    /// A pod is shown with its address: the answer is at most milliseconds away.
    fn address_is_coming(&self) -> bool {
        let sandbox = ready_sandbox(&self.view.pod);
        sandbox.is_some_and(|one| {
            one.ips.is_empty()
                && !host_network(self.pod())
                && self.lanes.is_busy(&Lane::Address(one.id.clone()))
        })
    }
}
