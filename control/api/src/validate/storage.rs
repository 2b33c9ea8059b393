//! PersistentVolumes and their claims.

use serde_json::Value;

use super::classes::reclaim_policy;
use super::label_selector::label_selector;
use super::metadata::{Scope, metadata, object_update};
use super::quantities::amount_value;
use super::{
    Errors, child, container, immutable, items, map, names, not_supported, one_of, present,
    push_messages, required, text,
};
use crate::registry::{FieldError, FieldErrorKind};
use crate::strategy::{Amount, keep};

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
/// Fields of a volume that do not say what it is made of.
const NOT_A_SOURCE: &[&str] = &[
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

/// Checks a PersistentVolume.
pub fn persistent_volume(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::subdomain, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    access_modes(spec, "", &mut errors);
    capacity(spec, &mut errors);
    let policy = "persistentVolumeReclaimPolicy";
    let known = &["Delete", "Recycle", "Retain"];
    reclaim_policy(spec, "spec", policy, known, &mut errors);
    source(spec, &mut errors);
    names_and_mode(spec, &mut errors);
    errors
}

fn access_modes(spec: &Value, missing: &str, errors: &mut Errors) {
    if items(spec, "", "accessModes").next().is_none() {
        errors.push(FieldError::required("spec.accessModes", missing));
    }
    let modes: Vec<&str> = items(spec, "", "accessModes")
        .map(|(_, mode)| mode.as_str().unwrap_or_default())
        .collect();
    for mode in &modes {
        if !ACCESS_MODES.contains(mode) {
            errors.push(not_supported("spec.accessModes".into(), mode, ACCESS_MODES));
        }
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", detail));
    }
}

fn capacity(spec: &Value, errors: &mut Errors) {
    let field = "spec.capacity";
    let mut count = 0;
    for (name, amount) in map(spec, "capacity") {
        count += 1;
        if name != "storage" {
            let detail = "supported values: \"storage\"";
            let kind = FieldErrorKind::NotSupported;
            let value = spec.get("capacity").cloned().unwrap_or_default();
            errors.push(FieldError::new(kind, field, value, detail));
        }
        positive(amount, &format!("{field}[{name}]"), errors);
    }
    if count == 0 {
        errors.push(FieldError::required(field, ""));
    }
}

fn positive(amount: &Value, field: &str, errors: &mut Errors) {
    let parsed = amount.as_str().and_then(Amount::parse);
    if parsed.is_some_and(|amount| amount.is_zero() || amount.is_negative()) {
        let detail = "must be greater than zero";
        errors.push(FieldError::invalid(field, amount.clone(), detail));
    }
}

/// What the volume is made of.
fn kinds(spec: &Value) -> Vec<&String> {
    spec.as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !NOT_A_SOURCE.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| key)
        .collect()
}

fn source(spec: &Value, errors: &mut Errors) {
    let kinds = kinds(spec);
    let Some(kind) = kinds.first() else {
        errors.push(FieldError::required("spec", "must specify a volume type"));
        return;
    };
    for more in &kinds[1..] {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(child("spec", more), detail));
    }
    let (source, path) = (&spec[kind.as_str()], child("spec", kind));
    match kind.as_str() {
        "hostPath" => {
            required(source, &path, "path", errors);
            container::no_way_up(text(source, "path"), &child(&path, "path"), errors);
            let recycled = text(spec, "persistentVolumeReclaimPolicy") == "Recycle";
            if text(source, "path") == "/" && recycled {
                let detail = "may not be 'recycle' for a hostPath mount of '/'";
                let field = "spec.persistentVolumeReclaimPolicy";
                errors.push(FieldError::forbidden(field, detail));
            }
        }
        "local" => {
            required(source, &path, "path", errors);
            container::no_way_up(text(source, "path"), &child(&path, "path"), errors);
            if spec.pointer("/nodeAffinity/required").is_none() {
                let detail = "Local volume requires node affinity";
                errors.push(FieldError::required("spec.nodeAffinity", detail));
            }
        }
        _ => (),
    }
}

fn names_and_mode(spec: &Value, errors: &mut Errors) {
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        let field = "spec.storageClassName";
        push_messages(errors, field, class, names::subdomain(class));
    }
    if present(spec, "volumeMode").is_some() {
        one_of(spec, "spec", "volumeMode", VOLUME_MODES, errors);
    }
    if let Some(affinity) = present(spec, "nodeAffinity") {
        let required = present(affinity, "required");
        let terms = required.map(|required| items(required, "", "nodeSelectorTerms").count());
        let path = "spec.nodeAffinity.required";
        match terms {
            None => errors.push(FieldError::required(
                path,
                "must specify required node constraints",
            )),
            Some(0) => {
                let detail = "must have at least one node selector term";
                let field = child(path, "nodeSelectorTerms");
                errors.push(FieldError::required(field, detail));
            }
            Some(_) => (),
        }
    }
}

/// Checks the change of a PersistentVolume.
pub fn persistent_volume_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    let null = Value::Null;
    let spec = |object: &Value| object.get("spec").unwrap_or(&null).clone();
    let (new_spec, old_spec) = (spec(new), spec(old));
    let sources = |spec: &Value| -> Vec<(String, Value)> {
        let kinds = kinds(spec);
        kinds
            .into_iter()
            .map(|kind| (kind.clone(), spec[kind.as_str()].clone()))
            .collect()
    };
    if sources(&new_spec) != sources(&old_spec) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    immutable(new, old, "/spec/volumeMode", "spec.volumeMode", &mut errors);
    if old_spec.get("nodeAffinity").is_some()
        && new_spec.get("nodeAffinity") != old_spec.get("nodeAffinity")
    {
        let detail = "field is immutable, except for updating from beta label to GA";
        let value = new_spec.get("nodeAffinity").cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.nodeAffinity", value, detail));
    }
    errors
}

/// Checks a PersistentVolumeClaim.
pub fn persistent_volume_claim(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let null = Value::Null;
    let spec = object.get("spec").unwrap_or(&null);
    access_modes(spec, "at least 1 access mode is required", &mut errors);
    if let Some(selector) = present(spec, "selector") {
        label_selector(selector, "spec.selector", &mut errors);
    }
    match spec.pointer("/resources/requests/storage") {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(amount) => {
            let field = "spec.resources[storage]";
            amount_value(amount, field, "storage", &mut errors);
            positive(amount, field, &mut errors);
        }
    }
    names_and_mode(spec, &mut errors);
    errors
}

/// Checks the change of a PersistentVolumeClaim: a volume, once; a class, once; more storage.
pub fn persistent_volume_claim_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    let null = Value::Null;
    let (new_spec, old_spec) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    let mut expected = new_spec.clone();
    if text(old_spec, "volumeName").is_empty() {
        keep(&mut expected, old_spec, "volumeName");
    }
    if present(old_spec, "storageClassName").is_none() {
        keep(&mut expected, old_spec, "storageClassName");
    }
    if old.pointer("/status/phase") == Some(&"Bound".into()) {
        let pointer = "/resources/requests/storage";
        let amount = |spec: &Value| {
            spec.pointer(pointer)
                .and_then(Value::as_str)
                .map(Amount::parse)
        };
        if let (Some(Some(new)), Some(Some(old))) = (amount(new_spec), amount(old_spec))
            && new.compare(old).is_ge()
            && let (Some(slot), Some(old)) =
                (expected.pointer_mut(pointer), old_spec.pointer(pointer))
        {
            *slot = old.clone();
        }
    }
    if expected != *old_spec {
        let detail = "spec is immutable after creation except resources.requests and \
                      volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}
