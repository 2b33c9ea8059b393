//! `status.qosClass`, as the node finds it too.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use swiftlet_proto::qos::QosClass;

/// The class of a pod with this specification. Of one that is no pod's nothing is known, and it is
/// refused anyway.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let spec = PodSpec::deserialize(spec);
    let class = spec.map(|spec| swiftlet_proto::qos::qos_class(&spec));
    class.unwrap_or(QosClass::BestEffort).as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_is_read_from_what_the_api_stores() {
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}});
        let spec = json!({"containers": [{"name": "a", "resources": full}]});
        assert_eq!(qos_class(&spec), "Guaranteed");
        assert_eq!(qos_class(&json!({})), "BestEffort");
    }
}
