//! The order of a merged list (apimachinery `pkg/util/strategicpatch`).
//!
//! Elements that the patch names stand in the patch's order; elements that only the server knows
//! keep their order among themselves and are placed before the first named element that the server
//! had behind them. So a new element comes before those that the patch does not name, as in
//! Kubernetes.

use serde_json::Value;

use super::schema::ListRule;

/// Puts `merged` in order. `wanted` is the patch's order, `before` the list before the patch.
pub(super) fn sort(
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    rule: ListRule,
) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| {
        list.iter()
            .position(|other| identity(other, rule) == identity(item, rule))
    };
    let mut named: Vec<(usize, Value)> = Vec::new();
    let mut server_only: Vec<(usize, Value)> = Vec::new();
    for item in merged {
        match position(wanted, &item) {
            Some(index) => named.push((index, item)),
            None => server_only.push((position(before, &item).unwrap_or(usize::MAX), item)),
        }
    }
    // Both sorts are stable.
    named.sort_by_key(|(index, _)| *index);
    server_only.sort_by_key(|(index, _)| *index);
    let mut sorted = Vec::with_capacity(named.len() + server_only.len());
    let mut waiting = server_only.into_iter().peekable();
    for (_, item) in named {
        if let Some(place) = position(before, &item) {
            while let Some((_, earlier)) = waiting.next_if(|(index, _)| *index < place) {
                sorted.push(earlier);
            }
        }
        sorted.push(item);
    }
    sorted.extend(waiting.map(|(_, item)| item));
    sorted
}

/// What makes two elements the same.
pub(super) fn identity(item: &Value, rule: ListRule) -> &Value {
    const NONE: &Value = &Value::Null;
    match rule {
        ListRule::Map(key) => item.get(key).unwrap_or(NONE),
        ListRule::Set | ListRule::Atomic => item,
    }
}
