//! What a pod asks for and may use at most: sums of the containers' requests and limits.
//!
//! Source of the rules: `staging/src/k8s.io/component-helpers/resource/helpers.go` of Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::amounts::{add, peak};
use swiftlet_proto::quantity::Quantity;

/// CPU, in a resource list.
pub const CPU: &str = "cpu";
/// Memory, in a resource list.
pub const MEMORY: &str = "memory";
/// Local disk, in a resource list.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Before the size of a huge page, in a resource list.
pub const HUGEPAGES: &str = "hugepages-";

/// Amounts by name: thousandths of a CPU, bytes of everything else.
pub type Demand = swiftlet_proto::amounts::Amounts;

/// CPU, memory and disk of a pod or container; `None` where nothing was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: Option<i64>,
    /// Bytes.
    pub memory_bytes: Option<i64>,
    /// Bytes of local disk.
    pub ephemeral_storage_bytes: Option<i64>,
}

impl Amounts {
    fn of(demand: &Demand) -> Self {
        Self {
            cpu_milli: demand.get(CPU).copied(),
            memory_bytes: demand.get(MEMORY).copied(),
            ephemeral_storage_bytes: demand.get(EPHEMERAL_STORAGE).copied(),
        }
    }
}

/// What the scheduler counts for the pod: the sum of what runs at the same time, at its highest,
/// and the overhead. What the pod as a whole asks for stands above its containers.
pub fn pod_demand(pod: &Pod) -> Demand {
    total(pod, requests_of, |spec| {
        spec.resources.as_ref()?.requests.as_ref()
    })
}

/// [`pod_demand`] without huge pages.
pub fn pod_requests(pod: &Pod) -> Amounts {
    Amounts::of(&pod_demand(pod))
}

/// A pod's limit exists only if every container has one: else one of them is unlimited. One of the
/// pod as a whole stands above that.
pub fn pod_limits(pod: &Pod) -> Amounts {
    Amounts::of(&pod_limit_demand(pod))
}

/// [`pod_limits`] with huge pages.
pub fn pod_limit_demand(pod: &Pod) -> Demand {
    let Some(spec) = &pod.spec else {
        return Demand::new();
    };
    let own = |spec: &'_ PodSpec| spec.resources.clone().and_then(|all| all.limits);
    let declared = own(spec).unwrap_or_default();
    let mut limits = total(pod, limits_of, |spec| {
        spec.resources.as_ref()?.limits.as_ref()
    });
    let all = all_containers(spec).map(limits_of).collect::<Vec<_>>();
    for name in [CPU, MEMORY] {
        let everywhere = all.iter().all(|one| one.contains_key(name));
        if !everywhere && !declared.contains_key(name) {
            limits.remove(name);
        }
    }
    limits
}

/// Main and init containers.
fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
}

/// What runs at the same time at its highest, or what the pod as a whole has, and the overhead.
fn total<'a>(
    pod: &'a Pod,
    of: impl Fn(&Container) -> Demand,
    whole: impl Fn(&'a PodSpec) -> Option<&'a BTreeMap<String, ApiQuantity>>,
) -> Demand {
    let Some(spec) = &pod.spec else {
        return Demand::new();
    };
    let mut main = peak(spec, of);
    for (name, amount) in read(whole(spec)) {
        let above = name == CPU || name == MEMORY || name.starts_with(HUGEPAGES);
        if above {
            main.insert(name, amount);
        }
    }
    add(&mut main, &read(spec.overhead.as_ref()));
    main
}

/// `resources.requests` of one container.
pub fn container_requests(container: &Container) -> Amounts {
    Amounts::of(&requests_of(container))
}

/// `resources.limits` of one container.
pub fn container_limits(container: &Container) -> Amounts {
    Amounts::of(&limits_of(container))
}

fn requests_of(container: &Container) -> Demand {
    let resources = container.resources.as_ref();
    read(resources.and_then(|all| all.requests.as_ref()))
}

fn limits_of(container: &Container) -> Demand {
    let resources = container.resources.as_ref();
    read(resources.and_then(|all| all.limits.as_ref()))
}

/// Reads a resource list. The API server has validated the texts; what cannot be read counts as
/// nothing. Extended resources are no kubelet's business without a device plugin.
pub fn read(list: Option<&BTreeMap<String, ApiQuantity>>) -> Demand {
    let mut found = Demand::new();
    for (name, text) in list.into_iter().flatten() {
        let known = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name.as_str());
        if !known && !name.starts_with(HUGEPAGES) {
            continue;
        }
        if let Ok(quantity) = Quantity::parse(&text.0) {
            let amount = if name == CPU {
                quantity.milli_value()
            } else {
                quantity.value()
            };
            found.insert(name.clone(), amount);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;

    use super::*;

    fn list(pairs: &[(&str, &str)]) -> BTreeMap<String, ApiQuantity> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, amount)| ((*name).to_owned(), ApiQuantity((*amount).to_owned())))
            .collect()
    }

    fn container(requests: &[(&str, &str)], limits: &[(&str, &str)], sidecar: bool) -> Container {
        Container {
            resources: Some(ResourceRequirements {
                requests: Some(list(requests)),
                limits: Some(list(limits)),
                ..ResourceRequirements::default()
            }),
            restart_policy: sidecar.then(|| "Always".to_owned()),
            ..Container::default()
        }
    }

    fn pod(spec: PodSpec) -> Pod {
        Pod {
            spec: Some(spec),
            ..Pod::default()
        }
    }

    #[test]
    fn what_runs_at_the_same_time_counts_at_its_highest() {
        let cpu = |amount, sidecar| container(&[("cpu", amount)], &[], sidecar);
        let mut spec = PodSpec {
            containers: vec![cpu("200m", false), cpu("100m", false)],
            init_containers: Some(vec![cpu("50m", true), cpu("400m", false)]),
            overhead: Some(list(&[("cpu", "7m")])),
            ..PodSpec::default()
        };
        // The init container runs beside the sidecar that came before it: 450m > 350m.
        assert_eq!(pod_requests(&pod(spec.clone())).cpu_milli, Some(457));
        spec.init_containers = Some(vec![cpu("400m", false), cpu("150m", true)]);
        assert_eq!(pod_requests(&pod(spec.clone())).cpu_milli, Some(457));
        spec.resources = Some(ResourceRequirements {
            requests: Some(list(&[("cpu", "2")])),
            ..ResourceRequirements::default()
        });
        assert_eq!(pod_requests(&pod(spec)).cpu_milli, Some(2007));
    }

    #[test]
    fn a_pod_is_limited_only_if_all_its_containers_are() {
        let limited = container(&[], &[("cpu", "1"), ("memory", "1Mi")], false);
        let half = container(&[], &[("memory", "1Mi")], false);
        let spec = PodSpec {
            containers: vec![limited, half],
            ..PodSpec::default()
        };
        let limits = pod_limits(&pod(spec));
        assert_eq!(
            (limits.cpu_milli, limits.memory_bytes),
            (None, Some(2 << 20))
        );
    }
}
