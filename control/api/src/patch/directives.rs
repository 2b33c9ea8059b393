//! The `$…` members of strategic patches.

use serde_json::{Map, Value};

use super::PatchError;

/// The member that says how its object, or the list of which it is an element, is patched.
pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

/// What `$patch` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Reads `$patch`.
pub(super) fn directive(patch: &Map<String, Value>) -> Result<Directive, PatchError> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(word)) if word == "merge" => Ok(Directive::Merge),
        Some(Value::String(word)) if word == "replace" => Ok(Directive::Replace),
        Some(Value::String(word)) if word == "delete" => Ok(Directive::Delete),
        Some(other) => Err(PatchError::Malformed(format!(
            "unknown patch type {other} found in: {PATCH}"
        ))),
    }
}

/// Whether a member of a patch is a directive, not data.
pub(super) fn is_directive(key: &str) -> bool {
    key == PATCH
        || key == RETAIN_KEYS
        || key.starts_with(SET_ELEMENT_ORDER)
        || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
}

/// The lists with `$setElementOrder/`.
pub(super) fn ordered_fields(patch: &Map<String, Value>) -> impl Iterator<Item = &str> {
    patch
        .keys()
        .filter_map(|key| key.strip_prefix(SET_ELEMENT_ORDER))
}

/// `$setElementOrder/<field>`.
pub(super) fn element_order<'a>(
    patch: &'a Map<String, Value>,
    field: &str,
) -> Result<Option<&'a [Value]>, PatchError> {
    list(patch, &format!("{SET_ELEMENT_ORDER}{field}"))
}

/// Removes what `$deleteFromPrimitiveList/…` names.
pub(super) fn delete_from_lists(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    for key in patch.keys() {
        let Some(field) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) else {
            continue;
        };
        let gone = list(patch, key)?.unwrap_or_default();
        if let Some(items) = target.get_mut(field).and_then(Value::as_array_mut) {
            items.retain(|item| !gone.contains(item));
        }
    }
    Ok(())
}

/// Removes all members but those in `$retainKeys`.
pub(super) fn retain_keys(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(kept) = list(patch, RETAIN_KEYS)? else {
        return Ok(());
    };
    let is_kept = |key: &str| kept.iter().any(|name| name.as_str() == Some(key));
    for (key, value) in patch {
        if !is_directive(key) && !value.is_null() && !is_kept(key) {
            return Err(PatchError::Malformed(format!(
                "patch has fields that are not in {RETAIN_KEYS}: {key}"
            )));
        }
    }
    target.retain(|key, _| is_kept(key));
    Ok(())
}

fn list<'a>(patch: &'a Map<String, Value>, key: &str) -> Result<Option<&'a [Value]>, PatchError> {
    match patch.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(PatchError::Malformed(format!("{key} must be a list"))),
    }
}
