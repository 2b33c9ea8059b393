//! `v1/secrets`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use super::fields::{default_to, object_in, text_at};
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Secrets.
pub(super) struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Secret>(object)
    }

    /// `stringData` is for writing only: it becomes `data`.
    fn apply_defaults(&self, object: &mut Value) {
        let Some(secret) = object.as_object_mut() else {
            return;
        };
        default_to(secret, "type", "Opaque");
        let Some(Value::Object(texts)) = secret.remove("stringData") else {
            return;
        };
        let Some(data) = object_in(secret, "data") else {
            return;
        };
        for (key, text) in texts {
            let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::secret(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::secret_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        (path == "type").then(|| text_at(object, "/type").to_owned())
    }
}
