//! Access to fields of objects that may have any shape.

use serde_json::{Map, Value};

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The elements at a JSON pointer; none if there is no list.
pub(crate) fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The object in `parent[key]`, made if it is missing. `None` if something else is there.
pub(super) fn object_in<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    if parent.get(key).is_none_or(Value::is_null) {
        parent.insert(key.to_owned(), Value::Object(Map::new()));
    }
    parent.get_mut(key).and_then(Value::as_object_mut)
}

/// The object in `object[key]`, made if it is missing.
pub(super) fn part<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    object
        .as_object_mut()
        .and_then(|object| object_in(object, key))
}

/// The object at `parent[key]`, if there is one.
pub(super) fn existing<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    parent.get_mut(key).and_then(Value::as_object_mut)
}

/// The objects in the list `parent[key]`.
pub(super) fn each<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    parent
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Sets a field that is missing, null or an empty text: what Go calls the zero value.
pub(super) fn default_to(parent: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let missing = match parent.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if missing {
        parent.insert(key.to_owned(), value.into());
    }
}

/// As [`default_to`], for numbers where zero means "not set" as well.
pub(super) fn default_nonzero(parent: &mut Map<String, Value>, key: &str, value: i64) {
    if parent
        .get(key)
        .is_none_or(|old| old.is_null() || old.as_i64() == Some(0))
    {
        parent.insert(key.to_owned(), value.into());
    }
}

/// Copies a top-level field, or its absence.
pub(crate) fn keep(new: &mut Value, old: &Value, key: &str) {
    let Some(new) = new.as_object_mut() else {
        return;
    };
    match old.get(key) {
        Some(value) => {
            new.insert(key.to_owned(), value.clone());
        }
        None => {
            new.remove(key);
        }
    }
}

/// The value of a selectable field: text as it is, numbers and booleans as written.
pub(super) fn shown_at(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
