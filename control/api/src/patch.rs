//! Patches: RFC 6902 (JSON Patch), RFC 7386 (JSON Merge Patch), and strategic merge patches.

mod directives;
mod json;
mod merge;
mod order;
mod schema;
mod strategic;

use serde_json::Value;
use swiftlet_client::api::PatchKind;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422, `Invalid`.
    #[error("{0}")]
    DoesNotApply(String),
    /// The result would be too large: 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
}

/// Applies a patch to an object; the object itself is not changed.
pub fn apply(kind: PatchKind, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    match kind {
        PatchKind::Json => json::apply(object, patch),
        PatchKind::Merge => {
            let mut patched = object.clone();
            merge::merge(&mut patched, expect_object(patch)?);
            Ok(patched)
        }
        PatchKind::Strategic => strategic::apply(object, expect_object(patch)?),
    }
}

/// A merge patch of an object is an object; anything else would replace the object as a whole.
fn expect_object(patch: &Value) -> Result<&Value, PatchError> {
    if patch.is_object() {
        return Ok(patch);
    }
    Err(PatchError::Malformed(
        "error decoding patch: the patch is not a JSON object".into(),
    ))
}

#[cfg(test)]
mod tests;
