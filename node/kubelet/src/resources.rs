//! What a pod asks for and may use at most: sums of the containers' requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::quantity::Quantity;

/// CPU and memory of a pod or container; `None` where nothing was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: Option<i64>,
    /// Bytes.
    pub memory_bytes: Option<i64>,
}

/// What the scheduler counts for the pod: the sum of its containers or its largest init container,
/// whichever is more, and the overhead.
pub fn pod_requests(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else {
        return Amounts::default();
    };
    let main = sum(spec.containers.iter().map(container_requests));
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(container_requests);
    let largest = init.fold(main, |most, next| Amounts {
        cpu_milli: most.cpu_milli.max(next.cpu_milli),
        memory_bytes: most.memory_bytes.max(next.memory_bytes),
    });
    sum([largest, read(spec.overhead.as_ref())].into_iter())
}

/// `resources.requests` of one container.
pub fn container_requests(container: &Container) -> Amounts {
    read(
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref()),
    )
}

/// `resources.limits` of one container.
pub fn container_limits(container: &Container) -> Amounts {
    read(
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref()),
    )
}

/// A pod's limit exists only if every container has one: else one of them is unlimited.
pub fn pod_limits(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else {
        return Amounts::default();
    };
    let all: Vec<Amounts> = spec.containers.iter().map(container_limits).collect();
    let total = sum(all.iter().copied());
    Amounts {
        cpu_milli: total
            .cpu_milli
            .filter(|_| all.iter().all(|one| one.cpu_milli.is_some())),
        memory_bytes: total
            .memory_bytes
            .filter(|_| all.iter().all(|one| one.memory_bytes.is_some())),
    }
}

/// Reads `cpu` and `memory` of a resource list. The API server has validated the texts; what cannot
/// be read counts as nothing.
fn read(list: Option<&BTreeMap<String, ApiQuantity>>) -> Amounts {
    let quantity = |name: &str| {
        list.and_then(|list| list.get(name))
            .and_then(|text| Quantity::parse(&text.0).ok())
    };
    Amounts {
        cpu_milli: quantity("cpu").map(Quantity::milli_value),
        memory_bytes: quantity("memory").map(Quantity::value),
    }
}

fn sum(all: impl Iterator<Item = Amounts>) -> Amounts {
    all.fold(Amounts::default(), |total, one| Amounts {
        cpu_milli: add(total.cpu_milli, one.cpu_milli),
        memory_bytes: add(total.memory_bytes, one.memory_bytes),
    })
}

fn add(left: Option<i64>, right: Option<i64>) -> Option<i64> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.saturating_add(right)),
        (one, other) => one.or(other),
    }
}
