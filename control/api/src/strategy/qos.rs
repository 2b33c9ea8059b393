//! `status.qosClass` (Kubernetes: `pkg/apis/core/v1/helper/qos`).

use serde_json::Value;

use super::canonical::Amount;
use super::fields::list_at;

/// The class of a pod with this specification.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let containers = list_at(spec, "/initContainers")
        .iter()
        .chain(list_at(spec, "/containers"));
    let (mut any, mut all_equal) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let amount = |kind: &str| {
                container
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
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
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
}
