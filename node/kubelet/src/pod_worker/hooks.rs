//! Lifecycle hooks of the pod's containers, as calls in flight.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use swiftlet_model::events::{EventKind, FAILED_POST_START_HOOK, FAILED_PRE_STOP_HOOK};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::ContainerState;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::actions::container_of;
use crate::kuberuntime::hooks::{self, Hook, HookError, POST_START_LIMIT, post_start, pre_stop};
use crate::pod_worker::Worker;
use crate::pod_worker::lanes::Lane;
use crate::pod_worker::stop::PreStop;
use crate::status::containers::Waiting;

/// `state.waiting.reason` after a postStart hook has failed (`ErrPostStartHook`).
pub(super) const POST_START_ERROR: &str = "PostStartHookError";

impl Worker {
    /// A container that is about to be started, or may be running already: it does not count as
    /// started before its postStart hook is over.
    pub(super) fn expect_hook(&mut self, name: &str, id: &ContainerId) {
        let spec = self.order.pod.spec.as_ref();
        let plain = spec.is_none_or(|spec| {
            let init = spec.init_containers.iter().flatten();
            let mut all = spec.containers.iter().chain(init);
            !all.any(|one| one.name == name && post_start(one).is_some())
        });
        if !plain {
            self.view.history.begin_start(id);
        }
    }

    /// Runs the postStart hooks of containers that have been started.
    pub(super) fn hook_pass(&mut self, now: Instant) {
        let starting: Vec<_> = self.view.history.starting().cloned().collect();
        for id in starting {
            let lane = Lane::PostStart(id.clone());
            let Some(record) = self.view.container(&id) else {
                continue;
            };
            let (name, state) = (record.name.clone(), record.state.clone());
            let begun = self.lanes.is_busy(&Lane::Start(name.clone()));
            match state {
                ContainerState::Running if !begun && self.lanes.is_free(&lane, now) => {
                    self.launch_post_start(name.as_str(), id);
                }
                ContainerState::Running | ContainerState::Created => {}
                // It has ended before its hook could run.
                _ if !self.lanes.is_busy(&lane) => self.view.history.end_start(&id, false),
                _ => {}
            }
        }
    }

    fn launch_post_start(&mut self, name: &str, id: ContainerId) {
        let container = container_of(self.pod(), name);
        let Some((container, handler)) = container
            .as_ref()
            .and_then(|one| post_start(one).map(|handler| (one, handler)))
        else {
            self.view.history.end_start(&id, false);
            return;
        };
        let ips = self.pod_ips();
        let hook = Hook::of(handler, container, ips.first().map(String::as_str));
        if ips.is_empty() && matches!(hook, Err(HookError::NoAddress)) {
            // The address comes in an instant.
            return;
        }
        let ending = self.ending.clone();
        let call = hooks::run(&self.shared, hook, id.clone(), POST_START_LIMIT, ending);
        self.lanes.launch(Lane::PostStart(id), call);
    }

    pub(super) fn launch_pre_stop(
        &mut self,
        container: &Container,
        id: &ContainerId,
        left: Duration,
    ) {
        let lane = Lane::PreStop(id.clone());
        let Some(handler) = pre_stop(container).filter(|_| !self.lanes.is_busy(&lane)) else {
            return;
        };
        let ips = self.pod_ips();
        let hook = Hook::of(handler, container, ips.first().map(String::as_str));
        // Nothing but the end of the grace period cuts it short.
        let ending = CancellationToken::new();
        let call = hooks::run(&self.shared, hook, id.clone(), left, ending);
        self.lanes.launch(lane, call);
    }

    /// A hook was not run, since the pod ends.
    pub(super) fn hook_cancelled(&mut self, lane: &Lane) {
        if let Lane::PostStart(id) = lane {
            self.view.history.end_start(id, false);
        }
    }

    pub(super) fn hook_answer(&mut self, lane: &Lane, result: Result<(), HookError>) {
        match lane {
            Lane::PostStart(id) => self.post_start_answer(id, result),
            Lane::PreStop(id) => self.pre_stop_answer(id, result),
            _ => {}
        }
    }

    fn post_start_answer(&mut self, id: &ContainerId, result: Result<(), HookError>) {
        self.view.history.end_start(id, result.is_err());
        let Err(why) = result else { return };
        tracing::warn!(pod = %self.key, container = %id, error = %why, "postStart hook failed");
        let Some(name) = self.view.container(id).map(|one| one.name.to_string()) else {
            return;
        };
        // What the hook said is not for everyone's eyes (kubelet leaves it out as well).
        let text = "PostStartHook failed".to_owned();
        self.tell(
            Some(&name),
            EventKind::Warning,
            FAILED_POST_START_HOOK,
            text,
        );
        let container = container_of(self.pod(), &name);
        let handler: Option<LifecycleHandler> =
            container.as_ref().and_then(|one| post_start(one).cloned());
        let message = handler.map(|one| Hook::failure(&one, &name, &self.key, &why));
        let waiting = Waiting {
            reason: POST_START_ERROR.to_owned(),
            message: message.unwrap_or_default(),
        };
        self.view.waiting.insert(name, waiting);
    }

    fn pre_stop_answer(&mut self, id: &ContainerId, result: Result<(), HookError>) {
        if let Some(stopping) = self.view.stopping.get_mut(id) {
            stopping.hook = PreStop::Over;
        }
        let Err(why) = result else { return };
        tracing::warn!(pod = %self.key, container = %id, error = %why, "preStop hook failed");
        if let Some(name) = self.view.container(id).map(|one| one.name.to_string()) {
            let text = "PreStopHook failed".to_owned();
            self.tell(Some(&name), EventKind::Warning, FAILED_PRE_STOP_HOOK, text);
        }
    }
}
