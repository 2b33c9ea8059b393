//! `node.k8s.io/v1/runtimeclasses`.

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::Value;

use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// RuntimeClasses.
pub(super) struct RuntimeClassStrategy;

impl Strategy for RuntimeClassStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<RuntimeClass>(object)
    }

    fn apply_defaults(&self, _object: &mut Value) {}

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::runtime_class(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::runtime_class_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
