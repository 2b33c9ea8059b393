//! `v1/configmaps`.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// ConfigMaps.
pub(super) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<ConfigMap>(object)
    }

    fn apply_defaults(&self, _object: &mut Value) {}

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::config_map(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::config_map_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
