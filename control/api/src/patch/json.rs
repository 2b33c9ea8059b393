//! JSON Patch, RFC 6902, with the limits of Kubernetes.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// Most operations in one patch (`maxJSONPatchOperations`).
const OPERATIONS_MAX: usize = 10_000;
/// Most bytes that `copy` may add in one patch: the limit of a request's body.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Deepest nesting of a result: that of the JSON decoder, so that what is stored can be read.
const DEPTH_MAX: usize = 128;

/// Applies all operations, or none.
pub(super) fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let patch: Patch = serde_json::from_value(patch.clone())
        .map_err(|why| PatchError::Malformed(format!("error decoding patch: {why}")))?;
    if patch.0.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            patch.0.len()
        )));
    }
    let mut patched = object.clone();
    let mut copied = 0;
    for operation in &patch.0 {
        check_growth(&patched, operation, &mut copied)?;
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation))
            .map_err(|why| PatchError::DoesNotApply(why.kind.to_string()))?;
    }
    Ok(patched)
}

/// Refuses what would grow without bound: a few copies of a value into itself are enough for that.
fn check_growth(
    object: &Value,
    operation: &PatchOperation,
    copied: &mut usize,
) -> Result<(), PatchError> {
    let source = |pointer: &json_patch::jsonptr::Pointer| object.pointer(pointer.as_str());
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Copy(copy) => {
            let value = source(&copy.from);
            *copied += value.map_or(0, |value| value.to_string().len());
            (&copy.path, value)
        }
        PatchOperation::Move(change) => (&change.path, source(&change.from)),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    if *copied > COPIED_BYTES_MAX {
        return Err(PatchError::TooLarge(format!(
            "the JSON patch copies more than {COPIED_BYTES_MAX} bytes"
        )));
    }
    let above = path.as_str().matches('/').count();
    if above + value.map_or(0, depth) > DEPTH_MAX {
        return Err(PatchError::TooLarge(format!(
            "the result of the JSON patch is nested deeper than {DEPTH_MAX} levels"
        )));
    }
    Ok(())
}

/// How deeply a value is nested; a scalar is 0 deep.
fn depth(value: &Value) -> usize {
    let below = |values: &mut dyn Iterator<Item = &Value>| values.map(depth).max().unwrap_or(0);
    match value {
        Value::Array(items) => 1 + below(&mut items.iter()),
        Value::Object(members) => 1 + below(&mut members.values()),
        _ => 0,
    }
}
