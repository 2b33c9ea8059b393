//! Namespaces.

use serde_json::Value;

use super::metadata::{Scope, metadata};
use super::names;
use crate::registry::FieldError;

/// Checks a Namespace.
pub fn namespace(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata(object, Scope::Cluster, names::label, &mut errors);
    errors
}
