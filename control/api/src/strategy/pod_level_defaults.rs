//! Defaults of what a pod as a whole asks for (Kubernetes: `defaultPodRequests` in
//! `pkg/apis/core/v1/defaults.go`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use swiftlet_proto::qos::is_pod_level;

use super::canonical::Amount;
use super::fields::{existing, object_in};

type Fields = Map<String, Value>;

/// A pod with limits of its own asks for what its containers ask for together, and where they ask
/// for nothing for its limit.
pub(super) fn default_pod_requests(spec: &mut Fields) {
    let limits = spec.get("resources").and_then(|all| all.get("limits"));
    let Some(limits) = limits.and_then(Value::as_object).cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let mut missing = Fields::new();
    for name in requested(spec) {
        // Huge pages are not overcommitted: their limit counts.
        if let Some(sum) = sum(spec, &name).filter(|_| !name.starts_with("hugepages-")) {
            missing.insert(name, sum.canonical().into());
        }
    }
    for (name, limit) in limits {
        if is_pod_level(&name) {
            missing.entry(name).or_insert(limit);
        }
    }
    let Some(resources) = existing(spec, "resources") else {
        return;
    };
    if let Some(requests) = object_in(resources, "requests") {
        for (name, amount) in missing {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// Names of what the containers ask for and pods can ask for.
fn requested(spec: &Fields) -> BTreeSet<String> {
    let lists = ["containers", "initContainers"];
    let all = lists.into_iter().flat_map(|list| containers(spec, list));
    let requests = all.filter_map(|one| one.pointer("/resources/requests")?.as_object());
    let names = requests.flat_map(|list| list.keys().cloned());
    names.filter(|name| is_pod_level(name)).collect()
}

/// What runs at the same time, at its highest: sidecars run beside everything that comes after
/// them, an init container runs alone.
fn sum(spec: &Fields, name: &str) -> Option<Amount> {
    let plus = |one: Option<Amount>, other: Option<Amount>| match (one, other) {
        (Some(one), Some(other)) => Some(one.plus(other)),
        (one, other) => one.or(other),
    };
    let of = |container: &Value| {
        let text = container.get("resources")?.get("requests")?.get(name)?;
        Amount::parse(text.as_str()?)
    };
    let (mut sidecars, mut highest) = (None, None);
    for container in containers(spec, "initContainers") {
        let alone = if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            sidecars = plus(sidecars, of(container));
            sidecars
        } else {
            plus(of(container), sidecars)
        };
        highest = higher(highest, alone);
    }
    let mains = containers(spec, "containers").map(of).fold(None, plus);
    higher(plus(mains, sidecars), highest)
}

fn higher(one: Option<Amount>, other: Option<Amount>) -> Option<Amount> {
    match (one, other) {
        (Some(one), Some(other)) if one.compare(other).is_lt() => Some(other),
        (one, other) => one.or(other),
    }
}

fn containers<'a>(spec: &'a Fields, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    spec.get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requests(mut spec: Value) -> Value {
        default_pod_requests(spec.as_object_mut().unwrap());
        spec["resources"]["requests"].clone()
    }

    #[test]
    fn a_pod_with_limits_asks_for_what_its_containers_ask_for_or_else_for_its_limit() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({
            "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}},
        });
        let spec = json!({
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            "initContainers": [sidecar, asks("100m")],
            "containers": [asks("100m"), asks("200m"), {}],
        });
        assert_eq!(requests(spec), json!({"cpu": "350m", "memory": "1Gi"}));
        let own = json!({
            "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            "containers": [asks("100m")],
        });
        assert_eq!(requests(own), json!({"cpu": "1"}));
    }

    #[test]
    fn a_pod_without_limits_of_its_own_is_left_alone() {
        let spec = json!({
            "resources": {"requests": {"memory": "1Gi"}},
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        });
        assert_eq!(requests(spec), json!({"memory": "1Gi"}));
        assert_eq!(requests(json!({"containers": []})), Value::Null);
    }
}
