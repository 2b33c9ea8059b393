//! Which pods make room for a critical one: as few and as small as will do, the least protected
//! first.
//!
//! Source of the rule: `pkg/kubelet/preemption/preemption.go` of Kubernetes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::PodKey;

use crate::admission::critical::{is_critical, priority};
use crate::admission::{Room, Shortage};
use crate::cgroups::qos_class;
use crate::resources::{Demand, pod_demand};

/// `status.reason` of a pod that made room.
pub const PREEMPTING: &str = "Preempting";
/// Its `status.message`.
pub const PREEMPTING_MESSAGE: &str = "Preempted in order to admit critical pod";
/// The message of its `DisruptionTarget` condition.
pub const PREEMPTING_CONDITION: &str =
    "Pod was preempted by Kubelet to accommodate a critical pod.";

/// A pod that could go, and what that would free.
struct Candidate {
    pod: Arc<Pod>,
    qos: QosClass,
    frees: Demand,
}

/// The pods that must end so that `pod` fits; `None` if even all of them would not do.
pub fn victims(pod: &Pod, room: &Room, shortages: &[Shortage]) -> Option<Vec<Arc<Pod>>> {
    let mut candidates: Vec<_> = room
        .pods()
        .into_iter()
        .filter(|other| is_preemptible(pod, other))
        .map(|other| {
            let mut frees = pod_demand(&other);
            frees.insert("pods".to_owned(), 1);
            Candidate {
                qos: qos_class(&other),
                frees,
                pod: other,
            }
        })
        .collect();
    candidates.sort_by_key(|one| PodKey::of(&one.pod).uid);
    let mut kept: Vec<Candidate> = Vec::new();
    // Seen from the best protected class: it gives only what all others together cannot.
    for class in [
        QosClass::Guaranteed,
        QosClass::Burstable,
        QosClass::BestEffort,
    ] {
        let (own, rest): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|one| one.qos == class);
        let weaker = rest.iter().chain(&kept);
        let open = without(shortages, weaker);
        kept.extend(nearest(own, open)?);
        candidates = rest;
    }
    Some(kept.into_iter().map(|one| one.pod).collect())
}

fn is_preemptible(preemptor: &Pod, other: &Pod) -> bool {
    match (is_critical(preemptor), is_critical(other)) {
        (true, false) => true,
        _ => priority(preemptor) > priority(other),
    }
}

/// What is still short when these have gone.
fn without<'a>(shortages: &[Shortage], gone: impl Iterator<Item = &'a Candidate>) -> Vec<Shortage> {
    let mut open = shortages.to_vec();
    for one in gone {
        for shortage in &mut open {
            let frees = one.frees.get(&shortage.resource);
            shortage.amount -= frees.copied().unwrap_or_default();
        }
    }
    open.retain(|shortage| shortage.amount > 0);
    open
}

/// Takes the candidate that comes nearest to what is open, until nothing is.
fn nearest(mut own: Vec<Candidate>, mut open: Vec<Shortage>) -> Option<Vec<Candidate>> {
    let mut chosen = Vec::new();
    while !open.is_empty() {
        let best = own.iter().enumerate().min_by(|(_, one), (_, other)| {
            let distances = distance(one, &open).total_cmp(&distance(other, &open));
            distances.then_with(|| size(one).cmp(&size(other)))
        });
        let (index, _) = best?;
        let one = own.remove(index);
        open = without(&open, std::iter::once(&one));
        chosen.push(one);
    }
    Some(chosen)
}

/// 0 for who frees everything that is open, and the number of resources for who frees nothing.
#[expect(clippy::cast_precision_loss, reason = "only an order comes of it")]
fn distance(one: &Candidate, open: &[Shortage]) -> f64 {
    let parts = open.iter().map(|shortage| {
        let frees = one.frees.get(&shortage.resource).copied();
        let left = 1.0 - frees.unwrap_or_default() as f64 / shortage.amount as f64;
        left.max(0.0).powi(2)
    });
    parts.sum()
}

fn size(one: &Candidate) -> (i64, i64) {
    let of = |name: &str| one.frees.get(name).copied().unwrap_or_default();
    (of("memory"), of("cpu"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;
    use crate::testing::stand::pod;

    fn wants(uid: &str, cpu: &str, priority: i32) -> Arc<Pod> {
        let mut pod = pod(uid);
        let spec = pod.spec.as_mut().unwrap();
        spec.priority = Some(priority);
        let requests = [("cpu".to_owned(), Quantity(cpu.to_owned()))].into();
        spec.containers[0].resources = Some(ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        });
        Arc::new(pod)
    }

    fn names(victims: Option<Vec<Arc<Pod>>>) -> Option<Vec<String>> {
        let name = |pod: Arc<Pod>| pod.metadata.name.clone().unwrap();
        victims.map(|all| all.into_iter().map(name).collect())
    }

    #[test]
    fn a_critical_pod_pushes_out_no_more_than_it_needs() {
        let mut room = Room::default();
        room.take(wants("big", "900m", 0));
        room.take(wants("right", "300m", 0));
        room.take(wants("small", "100m", 0));
        room.take(wants("other", "500m", 2_000_001_000));
        let critical = wants("new", "1", 2_000_001_000);
        let short = |amount| Shortage {
            resource: "cpu".into(),
            amount,
        };
        let found = |amount| names(victims(&critical, &room, &[short(amount)]));
        assert_eq!(
            found(250).unwrap(),
            ["right"],
            "the smallest of those that do"
        );
        assert_eq!(found(1200).unwrap(), ["big", "right"]);
        assert_eq!(found(2000), None, "another critical pod is left alone");
    }
}
