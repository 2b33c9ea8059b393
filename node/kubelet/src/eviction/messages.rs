//! The words of an eviction (`pkg/kubelet/eviction/helpers.go` of Kubernetes). Each sentence ends
//! with a space there, and so here.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use swiftlet_model::node_stats::Level;

use crate::eviction::amounts::binary;
use crate::eviction::thresholds::Threshold;
use crate::resources::read;
use crate::status::containers::api_time;

/// What a container uses of the resource that is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerUse {
    pub(super) name: String,
    pub(super) usage: u64,
}

/// Why a pod goes when the node is short of something.
pub(super) fn node_low(
    threshold: &Threshold,
    seen: Level,
    pod: &Pod,
    usages: &[ContainerUse],
) -> String {
    let resource = threshold.signal.resource();
    let print = |amount: u64| {
        if threshold.signal.is_bytes() {
            binary(amount)
        } else {
            amount.to_string()
        }
    };
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        print(threshold.value.of(seen.capacity)),
        print(seen.available)
    );
    for one in usages {
        let request = request(pod, &one.name, resource);
        if one.usage > request {
            let (usage, request) = (print(one.usage), print(request));
            message += &["Container ", &one.name, " was using ", &usage].concat();
            message += &[", request is ", &request, ", has larger consumption of "].concat();
            message += &[resource, ". "].concat();
        }
    }
    message
}

/// What a container asked for.
fn request(pod: &Pod, container: &str, resource: &str) -> u64 {
    let spec = pod.spec.as_ref();
    let mut all = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    let found = all.find(|one| one.name == container);
    let resources = found.and_then(|one| one.resources.as_ref());
    let requests = read(resources.and_then(|all| all.requests.as_ref()));
    let amount = requests.get(resource).copied().unwrap_or_default();
    u64::try_from(amount).unwrap_or_default()
}

/// An emptyDir that holds more than its `sizeLimit`, as the user wrote it.
pub(super) fn empty_dir(volume: &str, limit: &str) -> String {
    format!("Usage of EmptyDir volume \"{volume}\" exceeds the limit \"{limit}\". ")
}

/// A container that wrote more than its limit.
pub(super) fn container_storage(container: &str, limit: &str) -> String {
    format!("Container {container} exceeded its local ephemeral storage limit \"{limit}\". ")
}

/// A pod that wrote more than its containers may together.
pub(super) fn pod_storage(limit: u64) -> String {
    format!(
        "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
        binary(limit)
    )
}

/// The condition of a pod that the node ends before its time.
pub(crate) fn disruption_target(message: &str, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(api_time(now)),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;
    use crate::eviction::thresholds::Value;
    use crate::eviction::watchdog::Signal;
    use crate::testing::stand::pod;

    #[test]
    fn an_evicted_pod_is_told_how_much_was_left_and_who_took_it() {
        let mut pod = pod("a");
        pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
            requests: Some([("memory".to_owned(), Quantity("10Mi".into()))].into()),
            ..ResourceRequirements::default()
        });
        let threshold = Threshold {
            signal: Signal::MemoryAvailable,
            value: Value::Amount(100 << 20),
            grace: None,
            min_reclaim: None,
        };
        let seen = Level {
            capacity: 1 << 30,
            available: 80 << 20,
        };
        let use_of = |usage| ContainerUse {
            name: "main".into(),
            usage,
        };
        let low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: \
                   80Mi. ";
        let greedy = node_low(&threshold, seen, &pod, &[use_of(12 << 20)]);
        let taken = "Container main was using 12Mi, request is 10Mi, has larger consumption of \
                     memory. ";
        assert_eq!(greedy, format!("{low}{taken}"));
        assert_eq!(node_low(&threshold, seen, &pod, &[use_of(5 << 20)]), low);
    }
}
