//! `scheduling.k8s.io/v1/priorityclasses`.

use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

use super::fields::default_to;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// PriorityClasses.
pub(super) struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<PriorityClass>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if let Some(class) = object.as_object_mut() {
            default_to(class, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::priority_class(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::priority_class_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
