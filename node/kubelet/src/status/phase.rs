//! `status.phase`. Pure; the rules are those of `getPhase` in `pkg/kubelet/kubelet_pods.go`.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec};
use swiftlet_proto::pod::is_sidecar;

use crate::kuberuntime::actions::policy::RestartPolicy;

/// The pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have been started.
    Pending,
    /// Some container runs, or will again.
    Running,
    /// All have ended with exit code 0.
    Succeeded,
    /// All have ended, some of them badly.
    Failed,
}

impl PodPhase {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// The phase of an API object, if it is terminal.
    pub fn terminal(text: Option<&str>) -> Option<Self> {
        match text {
            Some("Succeeded") => Some(Self::Succeeded),
            Some("Failed") => Some(Self::Failed),
            _ => None,
        }
    }
}

/// What the states of the containers make of the pod. `ended`: nothing will run again.
pub fn phase(
    spec: &PodSpec,
    policy: RestartPolicy,
    init: &[ContainerStatus],
    mains: &[ContainerStatus],
    ended: bool,
) -> PodPhase {
    let wanted = spec.init_containers.as_deref().unwrap_or_default();
    let (sidecars, steps): (Vec<_>, Vec<_>) = wanted.iter().partition(|one| is_sidecar(one));
    let steps = steps
        .iter()
        .map(|container| init_step(container, init))
        .collect::<Vec<_>>();
    if steps.contains(&InitStep::Failed) && policy == RestartPolicy::Never {
        return PodPhase::Failed;
    }
    let mut count = Count::of(&spec.containers, mains);
    let main_ran = mains.iter().any(|one| one.container_id.is_some());
    let late = count.sidecars(&sidecars, init);
    if steps.contains(&InitStep::Pending) || (late && !main_ran) || count.waiting > 0 {
        return PodPhase::Pending;
    }
    if count.unknown > 0 || count.running + count.stopped == 0 {
        return PodPhase::Pending;
    }
    if count.running > 0 {
        return PodPhase::Running;
    }
    let well = count.stopped == count.succeeded;
    match policy {
        _ if ended && well => PodPhase::Succeeded,
        _ if ended => PodPhase::Failed,
        RestartPolicy::Always => PodPhase::Running,
        _ if well => PodPhase::Succeeded,
        RestartPolicy::Never => PodPhase::Failed,
        RestartPolicy::OnFailure => PodPhase::Running,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitStep {
    Pending,
    Failed,
    Done,
}

fn init_step(container: &Container, statuses: &[ContainerStatus]) -> InitStep {
    let status = statuses.iter().find(|status| status.name == container.name);
    let state = status
        .and_then(|status| status.state.clone())
        .unwrap_or_default();
    let last = status
        .and_then(|status| status.last_state.clone())
        .unwrap_or_default();
    match (state.terminated, state.waiting, last.terminated) {
        (Some(ended), _, _) | (None, Some(_), Some(ended)) => match ended.exit_code {
            0 => InitStep::Done,
            _ => InitStep::Failed,
        },
        _ => InitStep::Pending,
    }
}

#[derive(Default)]
struct Count {
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
}

impl Count {
    fn of(wanted: &[Container], statuses: &[ContainerStatus]) -> Self {
        let mut count = Self::default();
        for container in wanted {
            let status = statuses.iter().find(|status| status.name == container.name);
            let state = status
                .and_then(|status| status.state.clone())
                .unwrap_or_default();
            let last = status
                .and_then(|status| status.last_state.clone())
                .unwrap_or_default();
            if state.running.is_some() {
                count.running += 1;
            } else if let Some(ended) = state.terminated {
                count.stopped += 1;
                count.succeeded += usize::from(ended.exit_code == 0);
            } else if state.waiting.is_none() {
                count.unknown += 1;
            } else if last.terminated.is_some() {
                count.stopped += 1;
            } else {
                count.waiting += 1;
            }
        }
        count
    }

    /// Adds the sidecars: those that have ended do not count. True if one has not started yet.
    fn sidecars(&mut self, wanted: &[&Container], statuses: &[ContainerStatus]) -> bool {
        let mut late = false;
        for container in wanted {
            let status = statuses.iter().find(|status| status.name == container.name);
            let state = status.and_then(|status| status.state.clone());
            let state = state.unwrap_or_default();
            let ran = status.is_some_and(|status| {
                let last = status.last_state.as_ref();
                last.is_some_and(|last| last.terminated.is_some())
            });
            if state.running.is_some() {
                self.running += 1;
                late |= status.is_none_or(|status| status.started != Some(true));
            } else if state.terminated.is_some() || (state.waiting.is_some() && ran) {
                // It comes back, or the pod is over.
            } else {
                late = true;
                self.waiting += usize::from(state.waiting.is_some());
                self.unknown += usize::from(state.waiting.is_none());
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    };

    use super::*;

    fn status(name: &str, state: &str) -> ContainerStatus {
        let ended = |exit_code| {
            Some(ContainerStateTerminated {
                exit_code,
                ..ContainerStateTerminated::default()
            })
        };
        let mut status = ContainerStatus {
            name: name.to_owned(),
            ..ContainerStatus::default()
        };
        let mut now = ContainerState::default();
        match state {
            "running" => now.running = Some(ContainerStateRunning::default()),
            "waiting" => now.waiting = Some(ContainerStateWaiting::default()),
            "crashing" => {
                now.waiting = Some(ContainerStateWaiting::default());
                status.last_state = Some(ContainerState {
                    terminated: ended(1),
                    ..ContainerState::default()
                });
            }
            "0" => now.terminated = ended(0),
            _ => now.terminated = ended(1),
        }
        status.state = Some(now);
        status
    }

    fn check(policy: RestartPolicy, states: [&str; 2], ended: bool) -> PodPhase {
        let named = |name: &str| Container {
            name: name.to_owned(),
            ..Container::default()
        };
        let spec = PodSpec {
            containers: vec![named("a"), named("b")],
            ..PodSpec::default()
        };
        phase(
            &spec,
            policy,
            &[],
            &[status("a", states[0]), status("b", states[1])],
            ended,
        )
    }

    #[test]
    fn the_phase_follows_the_containers_and_the_restart_policy() {
        use PodPhase::{Failed, Pending, Running, Succeeded};
        use RestartPolicy::{Always, Never, OnFailure};
        for (policy, states, ended, expected) in [
            (Always, ["waiting", "running"], false, Pending),
            (Always, ["crashing", "running"], false, Running),
            (Always, ["crashing", "crashing"], false, Running),
            (Always, ["0", "0"], false, Running),
            (Always, ["0", "0"], true, Succeeded),
            (Always, ["0", "1"], true, Failed),
            (OnFailure, ["0", "0"], false, Succeeded),
            (OnFailure, ["0", "1"], false, Running),
            (Never, ["0", "0"], false, Succeeded),
            (Never, ["0", "1"], false, Failed),
            (Never, ["0", "running"], false, Running),
        ] {
            assert_eq!(
                check(policy, states, ended),
                expected,
                "{policy:?} {states:?} {ended}"
            );
        }
    }
}
