//! `v1/persistentvolumeclaims`.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::fields::{default_to, part, text_at};
use super::generation;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// PersistentVolumeClaims.
pub(super) struct PersistentVolumeClaimStrategy;

impl Strategy for PersistentVolumeClaimStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<PersistentVolumeClaim>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        if let Some(spec) = part(object, "spec") {
            default_to(spec, "volumeMode", "Filesystem");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".into(), json!({ "phase": "Pending" }));
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::persistent_volume_claim(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::persistent_volume_claim_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        (path == "name").then(|| text_at(object, "/metadata/name").to_owned())
    }
}
