//! `storage.k8s.io/v1/storageclasses`.

use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;

use super::fields::default_to;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// StorageClasses.
pub(super) struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<StorageClass>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if let Some(class) = object.as_object_mut() {
            default_to(class, "reclaimPolicy", "Delete");
            default_to(class, "volumeBindingMode", "Immediate");
        }
    }

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::storage_class(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::storage_class_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
