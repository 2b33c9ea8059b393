//! What pods ask for and nodes have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use swiftlet_proto::amounts::{self, Amounts};
use swiftlet_proto::quantity::Quantity;

/// What a container without a CPU request counts for when nodes are compared (Kubernetes'
/// `DefaultMilliCPURequest`).
const UNREQUESTED_MILLI_CPU: i64 = 100;
/// The same for memory (`DefaultMemoryRequest`, 200 MB).
const UNREQUESTED_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// Amounts of resources; CPU in thousandths, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Amounts);

/// Whether containers that ask for nothing count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrequested {
    Zero,
    Default,
}

impl Resources {
    /// Reads amounts of the API. What cannot be read counts as nothing: the API validates it.
    pub fn of(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let amount = |(name, quantity): (&String, &ApiQuantity)| {
            let quantity = Quantity::try_from(quantity).unwrap_or(Quantity::ZERO);
            let amount = if name == "cpu" {
                quantity.milli_value()
            } else {
                quantity.value()
            };
            (name.clone(), amount)
        };
        Self(amounts.into_iter().flatten().map(amount).collect())
    }

    /// The amount of one resource.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        amounts::add(&mut self.0, &other.0);
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_insert(0);
            *entry = entry.saturating_sub(*amount);
        }
    }

    fn or_default(&mut self, name: &str, amount: i64) {
        self.0.entry(name.to_owned()).or_insert(amount);
    }
}

/// What a pod needs at its peak, or as a whole, and the overhead on top.
pub(crate) fn pod_requests(pod: &Pod, unrequested: Unrequested) -> Resources {
    let Some(spec) = &pod.spec else {
        return Resources::default();
    };
    let of = |container: &Container| container_requests(container, unrequested).0;
    let mut running = Resources(amounts::peak(spec, of));
    override_by_pod(spec, &mut running);
    running.add(&Resources::of(spec.overhead.as_ref()));
    running
}

/// Requests of the pod as a whole stand in place of the sum.
fn override_by_pod(spec: &PodSpec, requests: &mut Resources) {
    let whole = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    requests.0.extend(Resources::of(whole).0);
}

fn container_requests(container: &Container, unrequested: Unrequested) -> Resources {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let mut requests = Resources::of(requests);
    if unrequested == Unrequested::Default {
        requests.or_default("cpu", UNREQUESTED_MILLI_CPU);
        requests.or_default("memory", UNREQUESTED_MEMORY_BYTES);
    }
    requests
}
