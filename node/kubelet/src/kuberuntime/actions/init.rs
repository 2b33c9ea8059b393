//! Init containers one after the other, and the sidecars among them, which go on. The rules are
//! those of `computeInitContainerActions` in `pkg/kubelet/kuberuntime/kuberuntime_container.go`.

use k8s_openapi::api::core::v1::Container;
use swiftlet_model::runtime::{ContainerState, ContainerStatus, SandboxStatus};
use swiftlet_proto::pod::is_sidecar;

use crate::kuberuntime::actions::policy::restarts;
use crate::kuberuntime::actions::{Decision, PodActions};

impl Decision<'_> {
    /// One step of the init containers; true when all have done their part.
    pub(super) fn init_step(&self, sandbox: &SandboxStatus, actions: &mut PodActions) -> bool {
        let init = self.init();
        let made = |one: &Container| self.newest_in(&one.name, &sandbox.id).is_some();
        let initialised = self.spec.containers.iter().any(made);
        // The last one that was made tells how far the pod is: records of earlier ones may be gone.
        let last = init.iter().rposition(made);
        let before = if initialised {
            init
        } else {
            &init[..last.unwrap_or(0)]
        };
        for sidecar in before.iter().filter(|one| is_sidecar(one)) {
            self.sidecar_step(sidecar, sandbox, actions);
        }
        if initialised {
            return true;
        }
        let next = match last {
            Some(last) if self.init_is_done(&init[last], sandbox, actions) => init.get(last + 1),
            Some(_) => return false,
            None => init.first(),
        };
        if let Some(next) = next {
            actions.start.push(self.start(next, sandbox, None));
        }
        next.is_none()
    }

    /// Whether the next container may follow this one; if not, what is to be done about it.
    fn init_is_done(
        &self,
        container: &Container,
        sandbox: &SandboxStatus,
        actions: &mut PodActions,
    ) -> bool {
        let Some(record) = self.newest_in(&container.name, &sandbox.id) else {
            return false;
        };
        if is_sidecar(container) {
            self.sidecar_step(container, sandbox, actions);
            return self.has_started(container, record);
        }
        match (&record.state, Self::exit_code(record)) {
            (ContainerState::Exited, Some(0)) => return true,
            (ContainerState::Exited, Some(code))
                if !restarts(self.spec, container, code) && !self.history.is_doomed(&record.id) =>
            {
                actions.finished = true;
            }
            (ContainerState::Exited, Some(_)) => {
                self.restart(container, record, sandbox, actions);
            }
            // How it has ended is not known yet.
            (ContainerState::Exited, None) => {}
            _ => self.living(container, record, sandbox, actions),
        }
        false
    }

    /// A sidecar is started again whenever it has ended, whatever the pod's policy.
    fn sidecar_step(
        &self,
        container: &Container,
        sandbox: &SandboxStatus,
        actions: &mut PodActions,
    ) {
        let Some(record) = self.newest_in(&container.name, &sandbox.id) else {
            actions.start.push(self.start(container, sandbox, None));
            return;
        };
        match (&record.state, Self::exit_code(record)) {
            (ContainerState::Exited, Some(_)) => self.restart(container, record, sandbox, actions),
            (ContainerState::Exited, None) => {}
            _ => self.living(container, record, sandbox, actions),
        }
    }

    /// A sidecar has started: its postStart hook is over and its startup probe has succeeded.
    fn has_started(&self, container: &Container, record: &ContainerStatus) -> bool {
        record.state == ContainerState::Running
            && !self.history.is_starting(&record.id)
            && self.probes.started(container, &record.id)
    }
}
