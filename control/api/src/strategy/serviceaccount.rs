//! `v1/serviceaccounts`.

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::Value;

use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// ServiceAccounts.
pub(super) struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<ServiceAccount>(object)
    }

    fn apply_defaults(&self, _object: &mut Value) {}

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::service_account(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::object_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
