//! `v1/events`.

use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

use super::fields::shown_at;
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// Events.
pub(super) struct EventStrategy;

impl Strategy for EventStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Event>(object)
    }

    fn apply_defaults(&self, _object: &mut Value) {}

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::event(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::object_update(new, old)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        let pointer = match path {
            "involvedObject.kind" => "/involvedObject/kind",
            "involvedObject.namespace" => "/involvedObject/namespace",
            "involvedObject.name" => "/involvedObject/name",
            "involvedObject.uid" => "/involvedObject/uid",
            "involvedObject.apiVersion" => "/involvedObject/apiVersion",
            "involvedObject.resourceVersion" => "/involvedObject/resourceVersion",
            "involvedObject.fieldPath" => "/involvedObject/fieldPath",
            "reason" => "/reason",
            "reportingComponent" => "/reportingComponent",
            "type" => "/type",
            "source" => {
                let source = shown_at(object, "/source/component");
                let source = if source.is_empty() {
                    shown_at(object, "/reportingComponent")
                } else {
                    source
                };
                return Some(source);
            }
            _ => return None,
        };
        Some(shown_at(object, pointer))
    }
}
