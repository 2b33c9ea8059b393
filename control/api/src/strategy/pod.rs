//! `v1/pods`.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::fields::{default_to, part, shown_at, text_at};
use super::{generation, pod_defaults, qos};
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Pods.
pub(super) struct PodStrategy;

/// What admission decided when the pod was new, and a client that sends the whole object may leave
/// out.
const ADMITTED: [&str; 4] = [
    "serviceAccountName",
    "serviceAccount",
    "priority",
    "preemptionPolicy",
];

fn keep_admitted(new: &mut Value, old: &Value) {
    let (Some(spec), Some(old)) = (part(new, "spec"), old.get("spec")) else {
        return;
    };
    for key in ADMITTED {
        if let Some(value) = old.get(key) {
            default_to(spec, key, value.clone());
        }
    }
}

impl Strategy for PodStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Pod>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if let Some(spec) = part(object, "spec") {
            pod_defaults::default_pod(spec);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        generation::first(object);
        let class = object.get("spec").map_or("BestEffort", qos::qos_class);
        if let Some(object) = object.as_object_mut() {
            object.insert(
                "status".into(),
                json!({ "phase": "Pending", "qosClass": class }),
            );
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
        keep_admitted(new, old);
        let changed = generation::differs(new, old, "spec");
        generation::next(new, old, changed);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
        let class = text_at(old, "/status/qosClass");
        if !class.is_empty()
            && let Some(status) = part(new, "status")
        {
            default_to(status, "qosClass", class);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::pod(object)
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        validate::pod_create(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::pod_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        let value = match path {
            "spec.nodeName" => text_at(object, "/spec/nodeName").to_owned(),
            "spec.restartPolicy" => text_at(object, "/spec/restartPolicy").to_owned(),
            "spec.schedulerName" => text_at(object, "/spec/schedulerName").to_owned(),
            "spec.serviceAccountName" => text_at(object, "/spec/serviceAccountName").to_owned(),
            "spec.hostNetwork" => {
                let host = object.pointer("/spec/hostNetwork").and_then(Value::as_bool);
                host.unwrap_or_default().to_string()
            }
            "status.phase" => text_at(object, "/status/phase").to_owned(),
            "status.podIP" => text_at(object, "/status/podIP").to_owned(),
            // The first address alone is selectable, as in Kubernetes.
            "status.podIPs" => shown_at(object, "/status/podIPs/0/ip"),
            "status.nominatedNodeName" => text_at(object, "/status/nominatedNodeName").to_owned(),
            _ => return None,
        };
        Some(value)
    }
}
