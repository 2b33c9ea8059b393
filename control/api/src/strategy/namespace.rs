//! `v1/namespaces`.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::fields::{object_in, part, text_at};
use super::generation;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Namespaces.
pub(super) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Namespace>(object)
    }

    /// Every namespace carries its name as a label, so that selectors can name it.
    fn apply_defaults(&self, object: &mut Value) {
        let name = text_at(object, "/metadata/name").to_owned();
        part(object, "spec");
        if name.is_empty() {
            return;
        }
        if let Some(labels) = part(object, "metadata").and_then(|meta| object_in(meta, "labels")) {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if let Some(spec) = part(object, "spec") {
            spec.insert("finalizers".into(), json!(["kubernetes"]));
        }
        if let Some(object) = object.as_object_mut() {
            object.insert("status".into(), json!({ "phase": "Active" }));
        }
    }

    /// Finalizers change through the subresource `finalize` alone.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
        super::keep(new, old, "spec");
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::namespace(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::object_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        (path == "status.phase").then(|| text_at(object, "/status/phase").to_owned())
    }
}
