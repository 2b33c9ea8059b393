//! Merge patches, and as much of strategic merge patches as controllers use.

use serde_json::Value;

/// Lists that a strategic merge patch merges by a key of their items.
const MERGED_LISTS: [(&str, &str); 3] = [
    ("conditions", "type"),
    ("ownerReferences", "uid"),
    ("taints", "key"),
];

/// Applies a patch in place.
pub(super) fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let entry = target.entry(name.clone()).or_insert(Value::Null);
        let key = MERGED_LISTS
            .iter()
            .find(|(list, _)| list == name)
            .map(|(_, key)| *key);
        match (key, entry, value) {
            (Some(key), Value::Array(items), Value::Array(patches)) if strategic => {
                merge_list(items, patches, key);
            }
            (_, entry, value) => merge(entry, value, strategic),
        }
    }
}

fn merge_list(items: &mut Vec<Value>, patches: &[Value], key: &str) {
    for patch in patches {
        match items.iter_mut().find(|item| item[key] == patch[key]) {
            Some(item) => merge(item, patch, true),
            None => items.push(patch.clone()),
        }
    }
}
