//! `v1/nodes`.

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::fields::{object_in, part};
use super::generation;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Nodes.
pub(super) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Node>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        part(object, "spec");
        // What may be used is what is there, until the node says otherwise.
        if let Some(status) = part(object, "status")
            && status.get("allocatable").is_none_or(Value::is_null)
            && let Some(capacity) = status.get("capacity").cloned()
        {
            object_in(status, "allocatable");
            status.insert("allocatable".into(), capacity);
        }
    }

    /// A node registers itself together with its status, so that is kept.
    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::node(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::node_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        let unschedulable = object
            .pointer("/spec/unschedulable")
            .and_then(Value::as_bool);
        (path == "spec.unschedulable").then(|| unschedulable.unwrap_or_default().to_string())
    }
}
