//! ConfigMaps, Secrets and ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::metadata::{Scope, metadata, object_update};
use super::{Errors, child, immutable, map, names, push_messages, text};
use crate::registry::{FieldError, FieldErrorKind};

/// Most bytes of data in one ConfigMap or Secret (`MaxSecretSize`).
const DATA_BYTES_MAX: usize = 1024 * 1024;
/// Keys that a Secret of a type must have.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

/// Checks a ConfigMap.
pub fn config_map(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let texts = map(object, "data").map(|(key, value)| (key, bytes_of_text(value)));
    let mut bytes = 0;
    for (key, length) in texts {
        key_of("data", key, &mut errors);
        if object
            .pointer("/binaryData")
            .and_then(|data| data.get(key))
            .is_some()
        {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                key.as_str().into(),
                detail,
            ));
        }
        bytes += length;
    }
    for (key, value) in map(object, "binaryData") {
        key_of("binaryData", key, &mut errors);
        bytes += bytes_of_base64(value);
    }
    size("", bytes, &mut errors);
    errors
}

/// Checks the change of a ConfigMap.
pub fn config_map_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    frozen(new, old, &["data", "binaryData"], &mut errors);
    errors
}

/// Checks a Secret.
pub fn secret(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    let mut bytes = 0;
    for (key, value) in map(object, "data") {
        key_of("data", key, &mut errors);
        bytes += bytes_of_base64(value);
    }
    size("data", bytes, &mut errors);
    let kind = text(object, "type");
    let required = REQUIRED_KEYS
        .iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, keys)| *keys);
    for key in required.unwrap_or_default() {
        if object.get("data").and_then(|data| data.get(key)).is_none() {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    }
    errors
}

/// Checks the change of a Secret.
pub fn secret_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = object_update(new, old);
    immutable(new, old, "/type", "type", &mut errors);
    frozen(new, old, &["data"], &mut errors);
    errors
}

/// Checks a ServiceAccount.
pub fn service_account(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Namespaced, names::subdomain, &mut errors);
    errors
}

fn key_of(field: &str, key: &str, errors: &mut Errors) {
    push_messages(
        errors,
        &format!("{field}[{key}]"),
        key,
        names::config_key(key),
    );
}

fn size(field: &str, bytes: usize, errors: &mut Errors) {
    if bytes > DATA_BYTES_MAX {
        let detail = format!("may not be more than {DATA_BYTES_MAX} bytes");
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            field,
            Value::Null,
            detail,
        ));
    }
}

fn bytes_of_text(value: &Value) -> usize {
    value.as_str().unwrap_or_default().len()
}

fn bytes_of_base64(value: &Value) -> usize {
    STANDARD
        .decode(value.as_str().unwrap_or_default())
        .map_or(0, |bytes| bytes.len())
}

/// An object that was made immutable stays as it is.
fn frozen(new: &Value, old: &Value, keys: &[&str], errors: &mut Errors) {
    let is_frozen = |object: &Value| object.get("immutable") == Some(&Value::Bool(true));
    if !is_frozen(old) {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !is_frozen(new) {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for key in keys {
        if new.get(key) != old.get(key) {
            errors.push(FieldError::forbidden(child("", key), detail));
        }
    }
}
