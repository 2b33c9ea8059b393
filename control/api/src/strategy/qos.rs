//! `status.qosClass` (Kubernetes: `pkg/apis/core/v1/helper/qos`).

use serde_json::Value;

use super::canonical::Amount;
use super::fields::list_at;

/// Resources that decide.
const NAMES: [&str; 2] = ["cpu", "memory"];

/// The class of a pod with this specification. What the pod as a whole asks for counts alone, if it
/// asks for something.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let (mut any, mut all_equal) = (false, true);
    let mut count = |owner: &Value| {
        for resource in NAMES {
            let amount = |kind: &str| {
                owner
                    .pointer(&format!("/resources/{kind}/{resource}"))
                    .and_then(Value::as_str)
                    .and_then(Amount::parse)
                    .filter(|amount| !amount.is_zero())
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            all_equal &= match (request, limit) {
                (Some(request), Some(limit)) => request.compare(limit).is_eq(),
                (None, Some(_)) => true,
                (_, None) => false,
            };
        }
    };
    if asks_as_a_whole(spec) {
        count(spec);
    } else {
        let init = list_at(spec, "/initContainers").iter();
        init.chain(list_at(spec, "/containers")).for_each(count);
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Whether `spec.resources` names something that a pod as a whole can ask for.
fn asks_as_a_whole(spec: &Value) -> bool {
    let lists = ["/resources/requests", "/resources/limits"];
    let mut names = lists
        .iter()
        .filter_map(|path| spec.pointer(path)?.as_object())
        .flat_map(|list| list.keys());
    names.any(|name| is_pod_level(name))
}

/// Whether a pod as a whole can ask for it.
pub(super) fn is_pod_level(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_requests_and_limits_of_all_containers() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}});
        let cases = [
            (json!({"containers": [{}]}), "BestEffort"),
            (
                json!({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}),
                "BestEffort",
            ),
            (json!({"containers": [{"resources": full}]}), "Guaranteed"),
            (
                json!({"containers": [{"resources": full}, {}]}),
                "Burstable",
            ),
            (
                json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}),
                "Burstable",
            ),
            (
                json!({"initContainers": [{}], "containers": [{"resources": full}]}),
                "Burstable",
            ),
            (json!({}), "BestEffort"),
        ];
        for (spec, class) in cases {
            assert_eq!(qos_class(&spec), class, "{spec}");
        }
    }

    #[test]
    fn what_the_pod_as_a_whole_asks_for_decides_alone() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let class = |whole: &Value, container: &Value| {
            qos_class(&json!({"resources": whole, "containers": [{"resources": container}]}))
        };
        assert_eq!(class(&full, &json!({})), "Guaranteed");
        let half = json!({"requests": {"memory": "1Gi"}});
        assert_eq!(class(&half, &full), "Burstable");
        assert_eq!(
            class(&json!({"requests": {"cpu": "0"}}), &full),
            "BestEffort"
        );
        // Disk is not asked for by pods.
        let disk = json!({"requests": {"ephemeral-storage": "1Gi"}});
        assert_eq!(class(&disk, &full), "Guaranteed");
    }
}
