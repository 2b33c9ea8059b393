//! The pod's status from what is known of it. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodSpec, PodStatus};
use swiftlet_model::runtime::RuntimePod;

use crate::admission::Rejection;
use crate::cgroups::qos_class;
use crate::kuberuntime::actions::policy::RestartPolicy;
use crate::kuberuntime::actions::{BackingOff, ready_sandbox};
use crate::kuberuntime::config::host_network;
use crate::kuberuntime::history::History;
use crate::prober::results::ProbeResults;
use crate::status::conditions::{ConditionFacts, conditions};
use crate::status::containers::{Waiting, api_time};
use crate::status::failure::PodFailure;
use crate::status::lists::Lists;
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
    /// What the probes have found.
    pub probes: &'a ProbeResults,
    /// The status shown before.
    pub previous: &'a PodStatus,
    /// The node did not take the pod.
    pub rejection: Option<&'a Rejection>,
    /// The node ends the pod, for this reason.
    pub failure: Option<&'a PodFailure>,
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
    // A pod never changes its class.
    let known = facts.previous.qos_class.clone();
    let qos_class = known.or_else(|| Some(qos_class(facts.pod).as_str().to_owned()));
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
    let spec = facts.pod.spec.as_ref();
    let lists = Lists::of(facts);
    let phase = guarded_phase(facts, &lists);
    let sandbox = ready_sandbox(facts.observed);
    let conditions = conditions(&ConditionFacts {
        pod: facts.pod,
        previous: facts.previous,
        phase,
        failure: facts.failure,
        init: &lists.init,
        mains: &lists.mains,
        sandbox_ready: sandbox.is_some() && !facts.ended,
        now: facts.now,
    });
    let pod_ips = pod_ips(facts);
    let (reason, message) = words(facts);
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
        init_container_statuses: spec
            .is_some_and(|spec| spec.init_containers.is_some())
            .then_some(lists.init),
        container_statuses: Some(lists.mains),
        ephemeral_container_statuses: some(lists.ephemeral),
        observed_generation: facts.pod.metadata.generation,
        reason,
        message,
        nominated_node_name: facts.previous.nominated_node_name.clone(),
        resource_claim_statuses: facts.previous.resource_claim_statuses.clone(),
        ..PodStatus::default()
    }
}

/// `reason` and `message` of the pod. Why a pod has failed is said when it has, and stays.
fn words(facts: &StatusFacts<'_>) -> (Option<String>, Option<String>) {
    let previous = facts.previous;
    if PodPhase::terminal(previous.phase.as_deref()).is_some() {
        return (previous.reason.clone(), previous.message.clone());
    }
    match facts.failure.filter(|_| facts.ended) {
        Some(failure) => {
            let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
            (text(&failure.reason), text(&failure.message))
        }
        None => (None, None),
    }
}

/// The one guard: a terminal phase never goes back.
fn guarded_phase(facts: &StatusFacts<'_>, lists: &Lists) -> PodPhase {
    if let Some(terminal) = PodPhase::terminal(facts.previous.phase.as_deref()) {
        return terminal;
    }
    if facts.ended && facts.failure.is_some() {
        return PodPhase::Failed;
    }
    let nothing = PodSpec::default();
    let phase = phase(
        facts.pod.spec.as_ref().unwrap_or(&nothing),
        RestartPolicy::of(facts.pod),
        &lists.init,
        &lists.mains,
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
