//! Strategic merge patches.

use serde_json::{Map, Value};

use super::PatchError;
use super::directives::{self, Directive, PATCH, is_directive};
use super::order::{self, identity};
use super::schema::{ListRule, list_rule};

type Members = Map<String, Value>;

/// Applies a strategic merge patch.
pub(super) fn apply(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut patched = object.clone();
    merge_value(&mut patched, patch, "")?;
    Ok(patched)
}

/// Merges an object, or replaces anything else. `name` is the field that holds the value.
fn merge_value(target: &mut Value, patch: &Value, name: &str) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Members::new());
    }
    match target.as_object_mut() {
        Some(target) => merge_members(target, patch, name),
        None => Ok(()),
    }
}

fn merge_members(target: &mut Members, patch: &Members, name: &str) -> Result<(), PatchError> {
    match directives::directive(patch)? {
        Directive::Merge => (),
        Directive::Replace => target.clear(),
        Directive::Delete => {
            target.clear();
            return Ok(());
        }
    }
    directives::retain_keys(target, patch)?;
    let before = ordered_lists(target, patch);
    directives::delete_from_lists(target, patch)?;
    for (key, value) in patch {
        if is_directive(key) {
            continue;
        }
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Array(items) => {
                let old = match target.remove(key) {
                    Some(Value::Array(old)) => old,
                    _ => Vec::new(),
                };
                let merged = merge_list(old, items, list_rule(name, key), key)?;
                target.insert(key.clone(), merged.into());
            }
            _ => merge_value(target.entry(key.clone()).or_insert(Value::Null), value, key)?,
        }
    }
    for (field, before) in before {
        let rule = list_rule(name, &field);
        let Some(order) = directives::element_order(patch, &field)? else {
            continue;
        };
        if let Some(Value::Array(items)) = target.get_mut(&field) {
            *items = order::sort(std::mem::take(items), order, &before, rule);
        }
    }
    Ok(())
}

/// The lists that `$setElementOrder` names, as they are before the patch.
fn ordered_lists(target: &Members, patch: &Members) -> Vec<(String, Vec<Value>)> {
    directives::ordered_fields(patch)
        .map(|field| {
            let items = target.get(field).and_then(Value::as_array);
            (field.to_owned(), items.cloned().unwrap_or_default())
        })
        .collect()
}

fn merge_list(
    old: Vec<Value>,
    patch: &[Value],
    rule: ListRule,
    name: &str,
) -> Result<Vec<Value>, PatchError> {
    match rule {
        ListRule::Atomic => patch.iter().map(|item| plain(item, name)).collect(),
        ListRule::Set => {
            let mut merged = old.clone();
            for item in patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            Ok(order::sort(merged, patch, &old, rule))
        }
        ListRule::Map(key) => merge_elements(old, patch, key, name),
    }
}

fn merge_elements(
    old: Vec<Value>,
    patch: &[Value],
    key: &'static str,
    name: &str,
) -> Result<Vec<Value>, PatchError> {
    let rule = ListRule::Map(key);
    let mut merged = old.clone();
    let mut named = Vec::new();
    if replaces_list(patch)? {
        merged.clear();
    }
    for item in patch {
        let Value::Object(members) = item else {
            return Err(PatchError::Malformed(format!(
                "expected an object in the list {name}, found {item}"
            )));
        };
        let directive = directives::directive(members)?;
        let id = members.get(key).filter(|id| !id.is_null());
        match (directive, id) {
            (Directive::Replace, None) => (),
            (_, None) => {
                return Err(PatchError::Malformed(format!(
                    "map: {item} does not contain declared merge key: {key}"
                )));
            }
            (Directive::Delete, Some(id)) => {
                merged.retain(|other| identity(other, rule) != id);
            }
            (Directive::Merge | Directive::Replace, Some(id)) => {
                let place = merged.iter_mut().find(|other| identity(other, rule) == id);
                match place {
                    Some(target) => merge_value(target, item, name)?,
                    None => merged.push(plain(item, name)?),
                }
                named.push(item.clone());
            }
        }
    }
    Ok(order::sort(merged, &named, &old, rule))
}

/// Whether an element `{"$patch": "replace"}` says that the list takes the old one's place.
fn replaces_list(patch: &[Value]) -> Result<bool, PatchError> {
    for item in patch {
        let Some(members) = item.as_object() else {
            continue;
        };
        let alone = members.keys().all(|key| key == PATCH);
        if alone && directives::directive(members)? == Directive::Replace {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A part of a patch without a counterpart in the object: the same without nulls and directives.
fn plain(patch: &Value, name: &str) -> Result<Value, PatchError> {
    let mut value = Value::Null;
    merge_value(&mut value, patch, name)?;
    Ok(value)
}
