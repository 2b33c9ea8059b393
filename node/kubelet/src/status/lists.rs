//! The three lists of container statuses, with what is kept of those shown before. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodSpec, PodStatus,
};
use swiftlet_model::ids::PodKey;
use swiftlet_proto::pod::is_sidecar;

use crate::kuberuntime::actions::as_container;
use crate::kuberuntime::history::{UNKNOWN_EXIT_CODE, UNKNOWN_EXIT_REASON};
use crate::status::containers::{ContainerFacts, Role, statuses};
use crate::status::generate::StatusFacts;
use crate::status::phase::PodPhase;

/// Bytes of all termination messages of a pod (`MaxPodTerminationMessageLogLength` in
/// `pkg/kubelet/container`).
const POD_MESSAGES_BYTES_MAX: usize = 12 << 10;

/// The statuses of all containers of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) init: Vec<ContainerStatus>,
    pub(crate) mains: Vec<ContainerStatus>,
    pub(crate) ephemeral: Vec<ContainerStatus>,
}

impl Lists {
    pub(crate) fn of(facts: &StatusFacts<'_>) -> Self {
        let Some(spec) = &facts.pod.spec else {
            return Self::default();
        };
        let key = PodKey::of(facts.pod);
        let wanted_init = spec.init_containers.as_deref().unwrap_or_default();
        let inputs = ContainerFacts {
            pod: &key,
            history: facts.history,
            waiting: facts.waiting,
            backing_off: facts.backing_off,
            probes: facts.probes,
            runtime_name: facts.runtime_name,
            initialising: !wanted_init.is_empty(),
            ended: facts.ended,
            now: facts.now,
        };
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let ephemeral: Vec<Container> = ephemeral.map(as_container).collect();
        let mut lists = Self {
            init: statuses(wanted_init, Role::Init, &inputs),
            mains: statuses(&spec.containers, Role::Main, &inputs),
            ephemeral: statuses(&ephemeral, Role::Ephemeral, &inputs),
        };
        lists.keep(facts.previous);
        if facts.ended {
            lists.account_for(spec);
        }
        lists.cut_messages();
        lists
    }

    fn keep(&mut self, previous: &PodStatus) {
        let over = PodPhase::terminal(previous.phase.as_deref()).is_some();
        for (new, shown) in [
            (&mut self.init, &previous.init_container_statuses),
            (&mut self.mains, &previous.container_statuses),
            (&mut self.ephemeral, &previous.ephemeral_container_statuses),
        ] {
            let shown = shown.as_deref().unwrap_or_default();
            for one in new.iter_mut() {
                keep_shown(shown, one);
            }
            if over {
                keep_terminated(shown, new);
            }
        }
    }

    /// In a pod that is over no container may look as if it still came: what was never made has
    /// failed, except where the pod never got that far (`TerminatePod` in `pkg/kubelet/status`).
    fn account_for(&mut self, spec: &PodSpec) {
        let wanted = spec.init_containers.as_deref().unwrap_or_default();
        if is_initialised(wanted, self) {
            self.init.iter_mut().for_each(mark_lost);
            self.mains.iter_mut().for_each(mark_lost);
        } else if let Some(last) = self.init.iter().rposition(has_begun) {
            self.init[..=last].iter_mut().for_each(mark_lost);
        }
    }

    /// Each container has its share of the room for messages.
    fn cut_messages(&mut self) {
        let count = self.init.len() + self.mains.len() + self.ephemeral.len();
        let share = POD_MESSAGES_BYTES_MAX / count.max(1);
        let lists = [&mut self.init, &mut self.mains, &mut self.ephemeral];
        let all = lists.into_iter().flatten();
        let states = all.flat_map(|one| [&mut one.state, &mut one.last_state]);
        let ended = states
            .flatten()
            .filter_map(|state| state.terminated.as_mut());
        for message in ended.filter_map(|ended| ended.message.as_mut()) {
            message.truncate(message.floor_char_boundary(share));
        }
    }
}

/// Whether the pod got past its init containers.
fn is_initialised(wanted: &[Container], lists: &Lists) -> bool {
    let Some(last) = wanted.last() else {
        return true;
    };
    let status = lists.init.iter().find(|one| one.name == last.name);
    let done = status.is_some_and(|one| {
        if is_sidecar(last) {
            one.started == Some(true)
        } else {
            one.ready
        }
    });
    done || lists.mains.iter().any(has_begun)
}

fn has_begun(status: &ContainerStatus) -> bool {
    status.container_id.is_some() || status.last_state.is_some()
}

fn mark_lost(status: &mut ContainerStatus) {
    let waits = status.state.as_ref();
    if waits.is_none_or(|state| state.waiting.is_none()) {
        return;
    }
    let terminated = ContainerStateTerminated {
        reason: Some(UNKNOWN_EXIT_REASON.to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        exit_code: UNKNOWN_EXIT_CODE,
        ..ContainerStateTerminated::default()
    };
    status.state = Some(ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    });
}

/// What was once shown of a container stays: the runtime names images and times in more than one
/// way, and a message is read but once.
fn keep_shown(shown: &[ContainerStatus], new: &mut ContainerStatus) {
    for state in [&mut new.state, &mut new.last_state] {
        let ended = state.as_mut().and_then(|state| state.terminated.as_mut());
        if let Some(ended) = ended
            && ended.message.is_none()
        {
            ended.message = message_of(shown, ended.container_id.as_ref());
        }
    }
    if new.container_id.is_none() {
        return;
    }
    let mut all = shown.iter();
    let Some(before) = all.find(|before| before.container_id == new.container_id) else {
        return;
    };
    new.image.clone_from(&before.image);
    new.image_id.clone_from(&before.image_id);
    let started = before
        .state
        .as_ref()
        .and_then(|state| state.running.clone());
    let running = new.state.as_mut().and_then(|state| state.running.as_mut());
    if let (Some(running), Some(started)) = (running, started) {
        *running = started;
    }
}

/// The message that was shown of the end of that container.
fn message_of(shown: &[ContainerStatus], id: Option<&String>) -> Option<String> {
    let id = id.filter(|id| !id.is_empty())?;
    let states = shown.iter().flat_map(|one| [&one.state, &one.last_state]);
    let mut ended = states
        .flatten()
        .filter_map(|state| state.terminated.as_ref());
    let ended = ended.find(|ended| ended.container_id.as_ref() == Some(id))?;
    ended.message.clone()
}

/// Records that the runtime has dropped since stay as they were shown.
fn keep_terminated(shown: &[ContainerStatus], new: &mut [ContainerStatus]) {
    let ended = |one: &ContainerStatus| one.state.iter().any(|s| s.terminated.is_some());
    for one in new.iter_mut().filter(|one| !ended(one)) {
        let mut all = shown.iter();
        if let Some(before) = all.find(|before| before.name == one.name && ended(before)) {
            *one = before.clone();
        }
    }
}
