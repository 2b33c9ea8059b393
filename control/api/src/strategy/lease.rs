//! `coordination.k8s.io/v1/leases`.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::fields::part;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Leases.
pub(super) struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Lease>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        part(object, "spec");
    }

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::lease(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::object_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
