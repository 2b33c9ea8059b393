//! `v1/persistentvolumes`.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::fields::{default_to, existing, part, text_at};
use super::generation;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// PersistentVolumes.
pub(super) struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<PersistentVolume>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        let Some(spec) = part(object, "spec") else {
            return;
        };
        default_to(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_to(spec, "volumeMode", "Filesystem");
        if let Some(source) = existing(spec, "hostPath")
            && source.get("type").is_none_or(Value::is_null)
        {
            source.insert("type".into(), "".into());
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

    /// The time of a phase's begin is the server's.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
        if text_at(new, "/status/phase") != text_at(old, "/status/phase")
            && let Some(status) = part(new, "status")
        {
            let now = crate::verb::now();
            status.insert("lastPhaseTransitionTime".into(), now.into());
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::persistent_volume(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::persistent_volume_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        // Kubernetes' own word: a volume's name as a field of another name.
        (path == "name").then(|| text_at(object, "/metadata/name").to_owned())
    }
}
