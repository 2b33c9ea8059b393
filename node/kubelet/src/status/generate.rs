//! The pod's status from what is known of it. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, HostIP, Pod, PodIP, PodStatus};
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::RuntimePod;

use crate::admission::Rejection;
use crate::cgroups::qos_class;
use crate::kuberuntime::actions::{BackingOff, RestartPolicy, ready_sandbox};
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::history::History;
use crate::status::conditions::{ConditionFacts, conditions};
use crate::status::containers::{ContainerFacts, Waiting, api_time, statuses};
use crate::status::phase::{PodPhase, phase};

/// All that a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct StatusFacts<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the runtime holds.
    pub observed: &'a RuntimePod,
    /// What was before.
    pub history: &'a History,
    /// Failures by container.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Containers in their crash loop.
    pub backing_off: &'a [BackingOff],
    /// The status shown before.
    pub previous: &'a PodStatus,
    /// The node did not take the pod.
    pub rejection: Option<&'a Rejection>,
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// Name of the runtime, the prefix of ids.
    pub runtime_name: &'a str,
    /// Nothing runs any more and nothing will.
    pub ended: bool,
    /// The wall clock.
    pub now: Timestamp,
}

/// The pod's status.
pub fn generate(facts: &StatusFacts<'_>) -> PodStatus {
    let qos_class = Some(qos_class(facts.pod).as_str().to_owned());
    if let Some(rejection) = facts.rejection {
        return PodStatus {
            phase: Some(PodPhase::Failed.as_str().to_owned()),
            reason: Some(rejection.reason.clone()),
            message: Some(format!("Pod was rejected: {}", rejection.message)),
            qos_class,
            observed_generation: facts.pod.metadata.generation,
            start_time: started(facts),
            conditions: facts.previous.conditions.clone(),
            ..PodStatus::default()
        };
    }
    let spec = facts.pod.spec.clone().unwrap_or_default();
    let (init, mains) = container_statuses(facts);
    let phase = guarded_phase(facts, &init, &mains);
    let sandbox = ready_sandbox(facts.observed);
    let conditions = conditions(&ConditionFacts {
        pod: facts.pod,
        previous: facts.previous,
        phase,
        init: &init,
        mains: &mains,
        sandbox_ready: sandbox.is_some() && !facts.ended,
        now: facts.now,
    });
    let pod_ips = pod_ips(facts);
    let terminal_before = PodPhase::terminal(facts.previous.phase.as_deref()).is_some();
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        conditions: Some(conditions),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: some(
            facts
                .host_ips
                .iter()
                .map(|ip| HostIP { ip: ip.clone() })
                .collect(),
        ),
        pod_ip: pod_ips.first().map(|one| one.ip.clone()),
        pod_ips: some(pod_ips),
        qos_class,
        start_time: started(facts),
        init_container_statuses: spec.init_containers.as_ref().map(|_| init),
        container_statuses: Some(mains),
        observed_generation: facts.pod.metadata.generation,
        // Why a pod has failed stays, once it has been said.
        reason: facts.previous.reason.clone().filter(|_| terminal_before),
        message: facts.previous.message.clone().filter(|_| terminal_before),
        nominated_node_name: facts.previous.nominated_node_name.clone(),
        resource_claim_statuses: facts.previous.resource_claim_statuses.clone(),
        ..PodStatus::default()
    }
}

/// Whether a change must be seen at once: phase, readiness, or a container that started or ended.
pub fn is_urgent(shown: &PodStatus, new: &PodStatus) -> bool {
    let ready = |status: &PodStatus| {
        let mut all = status.conditions.iter().flatten();
        all.find(|one| one.type_ == "Ready")
            .is_some_and(|one| one.status == "True")
    };
    let runs = |status: &PodStatus| -> Vec<(String, i32, bool, bool)> {
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let key = |one: &ContainerStatus| {
            let state = one.state.clone().unwrap_or_default();
            let (running, ended) = (state.running.is_some(), state.terminated.is_some());
            (one.name.clone(), one.restart_count, running, ended)
        };
        all.flatten()
            .map(key)
            .filter(|(_, _, running, ended)| *running || *ended)
            .collect()
    };
    let word = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "Pending".to_owned());
    word(shown) != word(new) || ready(shown) != ready(new) || {
        let before = runs(shown);
        runs(new).iter().any(|run| !before.contains(run))
    }
}

fn container_statuses(facts: &StatusFacts<'_>) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
    let spec = facts.pod.spec.clone().unwrap_or_default();
    let wanted_init = spec.init_containers.unwrap_or_default();
    let key = PodKey::of(facts.pod);
    let mut inputs = ContainerFacts {
        pod: &key,
        history: facts.history,
        waiting: facts.waiting,
        backing_off: facts.backing_off,
        runtime_name: facts.runtime_name,
        initialising: false,
        ended: facts.ended,
        now: facts.now,
    };
    inputs.initialising = !wanted_init.is_empty();
    let init = statuses(&wanted_init, true, &inputs);
    inputs.initialising = init.iter().any(|one| !one.ready);
    let mut init = init;
    let mut mains = statuses(&spec.containers, false, &inputs);
    keep_shown(facts.previous.init_container_statuses.as_ref(), &mut init);
    keep_shown(facts.previous.container_statuses.as_ref(), &mut mains);
    let terminal = PodPhase::terminal(facts.previous.phase.as_deref()).is_some();
    if terminal {
        keep_terminated(facts.previous, &mut mains);
    }
    (init, mains)
}

/// What was once shown of a container stays: the runtime names images and times in more than one
/// way.
fn keep_shown(previous: Option<&Vec<ContainerStatus>>, new: &mut [ContainerStatus]) {
    for one in new.iter_mut().filter(|one| one.container_id.is_some()) {
        let mut all = previous.into_iter().flatten();
        let Some(before) = all.find(|before| before.container_id == one.container_id) else {
            continue;
        };
        one.image.clone_from(&before.image);
        one.image_id.clone_from(&before.image_id);
        let started = before
            .state
            .as_ref()
            .and_then(|state| state.running.clone());
        let running = one.state.as_mut().and_then(|state| state.running.as_mut());
        if let (Some(running), Some(started)) = (running, started) {
            *running = started;
        }
    }
}

/// Records that the runtime has dropped since stay as they were shown.
fn keep_terminated(previous: &PodStatus, mains: &mut [ContainerStatus]) {
    for main in mains {
        let ended = |one: &ContainerStatus| one.state.iter().any(|s| s.terminated.is_some());
        if ended(main) {
            continue;
        }
        let mut all = previous.container_statuses.iter().flatten();
        if let Some(before) = all.find(|one| one.name == main.name && ended(one)) {
            *main = before.clone();
        }
    }
}

/// The one guard: a terminal phase never goes back.
fn guarded_phase(
    facts: &StatusFacts<'_>,
    init: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> PodPhase {
    if let Some(terminal) = PodPhase::terminal(facts.previous.phase.as_deref()) {
        return terminal;
    }
    let spec = facts.pod.spec.clone().unwrap_or_default();
    let phase = phase(
        &spec,
        RestartPolicy::of(facts.pod),
        init,
        mains,
        facts.ended,
    );
    match phase {
        // What ends before all its containers ran has failed.
        PodPhase::Pending | PodPhase::Running if facts.ended => PodPhase::Failed,
        // "Ended" is decided by the worker, which has looked at the whole pod.
        PodPhase::Succeeded | PodPhase::Failed if !facts.ended => PodPhase::Running,
        phase => phase,
    }
}

fn started(
    facts: &StatusFacts<'_>,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    facts
        .previous
        .start_time
        .clone()
        .or_else(|| Some(api_time(facts.now)))
}

fn pod_ips(facts: &StatusFacts<'_>) -> Vec<PodIP> {
    if host_network(facts.pod) {
        return facts
            .host_ips
            .iter()
            .map(|ip| PodIP { ip: ip.clone() })
            .collect();
    }
    let mut sandboxes: Vec<_> = facts.observed.sandboxes.iter().collect();
    sandboxes.sort_by_key(|one| std::cmp::Reverse(one.attempt));
    let found = sandboxes.iter().find(|one| !one.ips.is_empty());
    match found {
        Some(sandbox) => sandbox
            .ips
            .iter()
            .map(|ip| PodIP { ip: ip.clone() })
            .collect(),
        // A pod that is over keeps showing the address that it had.
        None => facts.previous.pod_ips.clone().unwrap_or_default(),
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}
