//! `apps/v1/replicasets`.

use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::{Map, Value};

use super::fields::{default_to, object_in, part};
use super::{generation, pod_defaults};
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// ReplicaSets.
pub(super) struct ReplicaSetStrategy;

/// Defaults of `spec.template`.
pub(super) fn default_template(spec: &mut Map<String, Value>) {
    let Some(template) = object_in(spec, "template") else {
        return;
    };
    object_in(template, "metadata");
    if let Some(pod) = object_in(template, "spec") {
        pod_defaults::default_pod_spec(pod);
    }
}

impl Strategy for ReplicaSetStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<ReplicaSet>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        let Some(spec) = part(object, "spec") else {
            return;
        };
        default_to(spec, "replicas", 1);
        default_template(spec);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        generation::clear_status(object);
        if let Some(status) = part(object, "status") {
            status.insert("replicas".into(), 0.into());
        }
        generation::first(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
        let changed = generation::differs(new, old, "spec");
        generation::next(new, old, changed);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::replica_set(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::workload_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        let replicas = object.pointer("/status/replicas").and_then(Value::as_i64);
        (path == "status.replicas").then(|| replicas.unwrap_or_default().to_string())
    }
}
