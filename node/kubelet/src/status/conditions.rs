//! `status.conditions`. Pure; the rules are those of `pkg/kubelet/status/generate.go`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use swiftlet_proto::pod::is_sidecar;

use crate::status::containers::api_time;
use crate::status::failure::PodFailure;
use crate::status::phase::PodPhase;

/// Conditions that the kubelet owns; others are kept as they are.
const OWNED: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// What the conditions are made from.
#[derive(Clone, Copy, Debug)]
pub struct ConditionFacts<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The status shown before: transition times and others' conditions come from it.
    pub previous: &'a PodStatus,
    /// The new phase.
    pub phase: PodPhase,
    /// The node ends the pod, for this reason.
    pub failure: Option<&'a PodFailure>,
    /// Statuses of the init containers.
    pub init: &'a [ContainerStatus],
    /// Statuses of the main containers.
    pub mains: &'a [ContainerStatus],
    /// The sandbox is up, with its network.
    pub sandbox_ready: bool,
    /// The wall clock.
    pub now: Timestamp,
}

/// A condition before it has times.
struct Verdict {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    const YES: Self = Self {
        holds: true,
        reason: None,
        message: None,
    };
    const NO: Self = Self {
        holds: false,
        reason: None,
        message: None,
    };

    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self {
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

/// All conditions: the kubelet's own, then those of others.
pub fn conditions(facts: &ConditionFacts<'_>) -> Vec<PodCondition> {
    let containers = containers_ready(facts);
    let ready = ready(facts, &containers);
    let sandbox = if facts.sandbox_ready {
        Verdict::YES
    } else {
        Verdict::NO
    };
    let own = [sandbox, initialized(facts), ready, containers, Verdict::YES];
    let own = OWNED
        .iter()
        .zip(own)
        .map(|(name, verdict)| timed(name, verdict, facts));
    let others = written(facts);
    let told = disruption(facts);
    let others = others
        .filter(|one| !OWNED.contains(&one.type_.as_str()))
        .filter(|one| told.as_ref().is_none_or(|told| told.type_ != one.type_))
        .cloned();
    own.chain(others).chain(told.clone()).collect()
}

/// What the node says about the end that it makes.
fn disruption(facts: &ConditionFacts<'_>) -> Option<PodCondition> {
    let mut told = facts.failure?.condition.clone()?;
    let mut all = facts.previous.conditions.iter().flatten();
    let before = all.find(|one| one.type_ == told.type_ && one.status == told.status);
    let since = before.and_then(|before| before.last_transition_time.clone());
    let since = since.or(told.last_transition_time);
    told.last_transition_time = Some(since.unwrap_or_else(|| api_time(facts.now)));
    told.observed_generation = facts.pod.metadata.generation;
    Some(told)
}

/// The conditions of the API's object: other controllers write there.
fn written<'a>(facts: &ConditionFacts<'a>) -> impl Iterator<Item = &'a PodCondition> {
    facts
        .pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
}

fn timed(name: &str, verdict: Verdict, facts: &ConditionFacts<'_>) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let mut all = facts.previous.conditions.iter().flatten();
    let before = all.find(|one| one.type_ == name);
    let same = before.filter(|before| before.status == status);
    let since = same.and_then(|before| before.last_transition_time.clone());
    if let (Some(before), "PodScheduled") = (same, name) {
        // The scheduler's words are kept.
        return PodCondition {
            observed_generation: facts.pod.metadata.generation,
            ..before.clone()
        };
    }
    PodCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message,
        last_transition_time: Some(since.unwrap_or_else(|| api_time(facts.now))),
        last_probe_time: None,
        observed_generation: facts.pod.metadata.generation,
    }
}

fn initialized(facts: &ConditionFacts<'_>) -> Verdict {
    if facts.phase == PodPhase::Succeeded {
        return Verdict {
            holds: true,
            reason: Some("PodCompleted"),
            message: None,
        };
    }
    let wanted = facts.pod.spec.iter().flat_map(|spec| &spec.init_containers);
    let waiting: Vec<&str> = wanted
        .flatten()
        .filter(|wanted| {
            let mut all = facts.init.iter();
            let status = all.find(|one| one.name == wanted.name);
            // A sidecar need not be ready; it must have started.
            !status.is_some_and(|one| {
                if is_sidecar(wanted) {
                    one.started == Some(true)
                } else {
                    one.ready
                }
            })
        })
        .map(|one| one.name.as_str())
        .collect();
    let main_ran = facts.mains.iter().any(|one| one.container_id.is_some());
    if waiting.is_empty() || main_ran {
        return Verdict::YES;
    }
    let message = format!("containers with incomplete status: [{}]", waiting.join(" "));
    Verdict::no("ContainersNotInitialized", Some(message))
}

fn containers_ready(facts: &ConditionFacts<'_>) -> Verdict {
    match facts.phase {
        PodPhase::Succeeded => return Verdict::no("PodCompleted", None),
        PodPhase::Failed => return Verdict::no("PodFailed", None),
        PodPhase::Pending | PodPhase::Running => {}
    }
    let spec = facts.pod.spec.as_ref();
    let wanted = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.filter(|one| is_sidecar(one)).chain(&spec.containers)
    });
    let all = || facts.init.iter().chain(facts.mains);
    let is_ready = |name: &str| all().any(|one| one.name == name && one.ready);
    let unready: Vec<&str> = wanted
        .map(|one| one.name.as_str())
        .filter(|name| !is_ready(name))
        .collect();
    if unready.is_empty() {
        return Verdict::YES;
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict::no("ContainersNotReady", Some(message))
}

fn ready(facts: &ConditionFacts<'_>, containers: &Verdict) -> Verdict {
    if !containers.holds {
        return Verdict {
            holds: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let gates = facts
        .pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    let mut missing = Vec::new();
    for gate in gates {
        let mut all = written(facts);
        let name = &gate.condition_type;
        match all.find(|one| one.type_ == *name) {
            None => missing.push(format!(
                "corresponding condition of pod readiness gate \"{name}\" does not exist."
            )),
            Some(one) if one.status != "True" => {
                missing.push(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                    one.status
                ));
            }
            Some(_) => {}
        }
    }
    if missing.is_empty() {
        return Verdict::YES;
    }
    Verdict::no("ReadinessGatesNotReady", Some(missing.join(", ")))
}
