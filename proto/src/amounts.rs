//! Sums of what containers ask for, as scheduler and node both count them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::pod::is_sidecar;

/// Amounts of resources by name: thousandths of a CPU, whole units of everything else.
pub type Amounts = BTreeMap<String, i64>;

/// Adds each amount.
pub fn add(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Raises each amount to the other one.
pub fn raise(highest: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let most = highest.entry(name.clone()).or_insert(*amount);
        *most = (*most).max(*amount);
    }
}

/// What a pod's containers need together when it is most, each by `of`: init containers run one
/// after another beside the sidecars that were started before them, then the main containers
/// beside all sidecars.
/// Source: `AggregateContainerRequests` in `component-helpers/resource/helpers.go` of Kubernetes.
pub fn peak(spec: &PodSpec, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let mut now = of(container);
        if is_sidecar(container) {
            add(&mut sidecars, &now);
            now.clone_from(&sidecars);
        } else {
            add(&mut now, &sidecars);
        }
        raise(&mut peak, &now);
    }
    let mut running = sidecars;
    for container in &spec.containers {
        add(&mut running, &of(container));
    }
    raise(&mut running, &peak);
    running
}
