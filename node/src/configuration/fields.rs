//! The table of all fields (`fields.txt`), and what a value of each type is.

use std::sync::LazyLock;

use serde_json::Value;
use swiftlet_proto::quantity::Quantity;

use super::{ConfigurationError, duration};

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Served,
    Warned,
    Refused,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    String,
    Duration,
    Quantity,
    /// A list of strings.
    Strings,
    /// From string to string.
    Map,
    /// From string to bool.
    Bools,
    /// From string to list of strings.
    Headers,
    List,
    Any,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) default: Value,
}

/// The table. A mistake in it is found by its test.
pub(super) static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines();
    lines.filter_map(field).collect()
});

fn field(line: &str) -> Option<Field> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let (path, kind, state) = (*words.first()?, *words.get(1)?, *words.get(2)?);
    let default = words.get(3..)?.join(" ");
    Some(Field {
        path: path.to_owned(),
        kind: match kind {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "float" => Kind::Float,
            "string" => Kind::String,
            "duration" => Kind::Duration,
            "quantity" => Kind::Quantity,
            "strings" => Kind::Strings,
            "map" => Kind::Map,
            "bools" => Kind::Bools,
            "headers" => Kind::Headers,
            "list" => Kind::List,
            "any" => Kind::Any,
            _ => return None,
        },
        state: match state {
            "served" => State::Served,
            "warned" => State::Warned,
            "refused" => State::Refused,
            _ => return None,
        },
        default: serde_json::from_str(&default).ok()?,
    })
}

/// The field of this path.
pub(super) fn find(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}

/// Whether fields lie below this path.
pub(super) fn is_group(path: &str) -> bool {
    let below = |field: &Field| {
        let rest = field.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    FIELDS.iter().any(below)
}

/// Whether a value says something.
pub(super) fn is_set(field: &Field, value: &Value) -> Result<bool, ConfigurationError> {
    if value.is_null() {
        return Ok(false);
    }
    if let Some(expected) = misfit(field.kind, value) {
        return Err(ConfigurationError::Value {
            field: field.path.clone(),
            reason: format!("{value} is not {expected}"),
        });
    }
    Ok(match (field.kind, value) {
        (Kind::Duration, Value::String(text)) => {
            duration::parse(text).is_some_and(|duration| !duration.is_zero())
        }
        // An empty list says that nothing is enforced, say.
        (Kind::String, Value::String(text)) => !text.is_empty(),
        (_, Value::Object(fields)) => !fields.is_empty(),
        _ => true,
    })
}

/// What the value should be, if it is something else.
fn misfit(kind: Kind, value: &Value) -> Option<&'static str> {
    let strings = |value: &Value| {
        let items = value.as_array();
        items.is_some_and(|items| items.iter().all(Value::is_string))
    };
    let map = |fits: &dyn Fn(&Value) -> bool| {
        let fields = value.as_object();
        fields.is_some_and(|fields| fields.values().all(fits))
    };
    let (fits, expected) = match kind {
        Kind::Bool => (value.is_boolean(), "true or false"),
        Kind::Int => (value.is_i64(), "a whole number"),
        Kind::Float => (value.is_number(), "a number"),
        Kind::String => (value.is_string(), "a string"),
        Kind::Duration => {
            let text = value.as_str();
            let fits = text.is_some_and(|text| duration::parse(text).is_some());
            (fits, "a duration such as \"20s\"")
        }
        Kind::Quantity => {
            let fits = match value {
                Value::String(text) => Quantity::parse(text).is_ok(),
                other => other.is_i64(),
            };
            (fits, "a quantity such as \"10Mi\"")
        }
        Kind::Strings => (strings(value), "a list of strings"),
        Kind::Map => (map(&Value::is_string), "a map from string to string"),
        Kind::Bools => (
            map(&Value::is_boolean),
            "a map from string to true or false",
        ),
        Kind::Headers => (map(&strings), "a map from string to list of strings"),
        Kind::List => (value.is_array(), "a list"),
        Kind::Any => (true, "anything"),
    };
    (!fits).then_some(expected)
}

/// Whether two values mean the same.
pub(super) fn is_same(field: &Field, one: &Value, other: &Value) -> bool {
    match (field.kind, one, other) {
        (Kind::Duration, Value::String(one), Value::String(other)) => {
            duration::parse(one) == duration::parse(other)
        }
        (Kind::Any, ..) => true,
        (Kind::Float, one, other) => one.as_f64() == other.as_f64(),
        (Kind::Quantity, ..) => amount(one) == amount(other),
        _ => one == other,
    }
}

/// The amount of a quantity.
pub(super) fn amount(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => Quantity::parse(text).ok().map(Quantity::value),
        other => other.as_i64(),
    }
}
