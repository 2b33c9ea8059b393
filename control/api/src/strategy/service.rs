//! `v1/services`.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Map, Value, json};

use super::fields::{default_to, each, part, shown_at, text_at};
use super::generation;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::service_ip;
use crate::validate;

/// How long a client stays with its pod where it shall (`DefaultClientIPServiceAffinitySeconds`).
const AFFINITY_S: i64 = 10_800;

/// Services.
pub(super) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Service>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if let Some(spec) = part(object, "spec") {
            default_spec(spec);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".into(), json!({ "loadBalancer": {} }));
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
        service_ip::drop_unneeded(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::service(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::service_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        match path {
            "spec.clusterIP" => Some(shown_at(object, "/spec/clusterIP")),
            "spec.type" => Some(text_at(object, "/spec/type").to_owned()),
            _ => None,
        }
    }
}

fn default_spec(spec: &mut Map<String, Value>) {
    default_to(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let config = spec.get("sessionAffinityConfig");
            let timeout = config.and_then(|config| config.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none() {
                let config = json!({ "clientIP": { "timeoutSeconds": AFFINITY_S } });
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => (),
    }
    default_to(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        default_to(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(target) => target.as_i64() == Some(0) || target.as_str() == Some(""),
        };
        if unset && let Some(number) = port.get("port").cloned() {
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let kind = kind.to_owned();
    let has_external_ips = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    let is_external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && has_external_ips);
    if is_external {
        default_to(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        default_to(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
}
