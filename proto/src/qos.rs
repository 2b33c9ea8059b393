//! The class of a pod by what it asks for: control plane and node must find the same one.
//!
//! Source of the rule: `pkg/apis/core/v1/helper/qos` of Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::amounts::{Amounts, peak};
use crate::quantity::Quantity;

/// Resources that decide.
const NAMES: [&str; 2] = ["cpu", "memory"];
/// Before the size of a huge page, in a resource list.
const HUGEPAGES: &str = "hugepages-";

/// `status.qosClass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// Limits equal requests for CPU and memory of all containers.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// Neither requests nor limits.
    BestEffort,
}

impl QosClass {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The class: over CPU and memory of all containers, init containers among them. What the pod as a
/// whole asks for counts alone, if it asks for something.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let (mut any, mut guaranteed) = (false, true);
    let mut count = |resources: Option<&ResourceRequirements>, missing: &Amounts| {
        let requests = deciding(resources.and_then(|all| all.requests.as_ref()));
        let limits = deciding(resources.and_then(|all| all.limits.as_ref()));
        for name in NAMES {
            let limit = limits.get(name);
            // The API server sets a missing request; a static pod has not passed it.
            let request = requests.get(name);
            let request = request.or_else(|| limit.and(missing.get(name).or(limit)));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    };
    if let Some(whole) = pod_level(spec) {
        let asked = |container: &Container| {
            let resources = container.resources.as_ref();
            deciding(resources.and_then(|all| all.requests.as_ref()))
        };
        count(Some(whole), &peak(spec, asked));
    } else {
        let init = spec.init_containers.iter().flatten();
        for container in init.chain(&spec.containers) {
            count(container.resources.as_ref(), &Amounts::new());
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// What the pod as a whole asks for, if that is something it can ask for.
pub fn pod_level(spec: &PodSpec) -> Option<&ResourceRequirements> {
    let whole = spec.resources.as_ref()?;
    let lists = [&whole.requests, &whole.limits];
    let mut names = lists.into_iter().flatten().flat_map(BTreeMap::keys);
    names.any(|name| is_pod_level(name)).then_some(whole)
}

/// Whether a pod as a whole can ask for it.
pub fn is_pod_level(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(HUGEPAGES)
}

/// The amounts that decide. Nothing, and what cannot be read, is not asked for.
fn deciding(list: Option<&BTreeMap<String, ApiQuantity>>) -> Amounts {
    let all = list.into_iter().flatten();
    let named = all.filter(|(name, _)| NAMES.contains(&name.as_str()));
    let amounts = named.filter_map(|(name, text)| {
        let quantity = Quantity::parse(&text.0).ok()?;
        let amount = match name.as_str() {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        (amount > 0).then(|| (name.clone(), amount))
    });
    amounts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(spec: Value) -> QosClass {
        qos_class(&serde_json::from_value(spec).unwrap())
    }

    fn full() -> Value {
        let list = json!({"cpu": "1", "memory": "1Gi"});
        json!({"limits": list, "requests": list})
    }

    #[test]
    fn the_class_follows_requests_and_limits_of_all_containers() {
        let one = |resources: Value| json!({"containers": [{"resources": resources}]});
        let same = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}});
        let cases = [
            (json!({}), QosClass::BestEffort),
            (one(json!({})), QosClass::BestEffort),
            (one(json!({"requests": {"cpu": "0"}})), QosClass::BestEffort),
            (one(full()), QosClass::Guaranteed),
            (one(same), QosClass::Guaranteed),
            (one(json!({"limits": {"cpu": "1"}})), QosClass::Burstable),
            (
                json!({"containers": [{"resources": full()}, {}]}),
                QosClass::Burstable,
            ),
            (
                json!({"initContainers": [{}], "containers": [{"resources": full()}]}),
                QosClass::Burstable,
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(class(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn what_the_pod_as_a_whole_asks_for_decides_alone() {
        let of = |whole: &Value, container: &Value| {
            class(json!({"resources": whole, "containers": [{"resources": container}]}))
        };
        assert_eq!(of(&full(), &json!({})), QosClass::Guaranteed);
        let half = json!({"requests": {"memory": "1Gi"}});
        assert_eq!(of(&half, &json!({})), QosClass::Burstable);
        assert_eq!(of(&half, &full()), QosClass::Burstable);
        let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(of(&limits, &json!({})), QosClass::Guaranteed);
        // The missing request becomes that of the containers.
        let asks = json!({"requests": {"cpu": "100m"}});
        assert_eq!(of(&limits, &asks), QosClass::Burstable);
        let zero = json!({"requests": {"cpu": "0"}});
        assert_eq!(of(&zero, &full()), QosClass::BestEffort);
        // Disk is not asked for by pods.
        let disk = json!({"requests": {"ephemeral-storage": "1Gi"}});
        assert_eq!(of(&disk, &full()), QosClass::Guaranteed);
    }
}
