//! The table of messages, read once from `schema.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How often a field may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once; zero means unset.
    Plain,
    /// Once or never; zero is a value.
    Optional,
    /// Many times.
    Repeated,
    /// Many times, each with a key.
    Map,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Bool,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON in bytes.
    Json,
    Message(&'static str),
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its name in JSON; `-`: its fields belong to the parent.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
}

type Messages = HashMap<&'static str, HashMap<u64, Field>>;

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| parse(include_str!("schema.txt")));

/// Whether a message is known.
pub(super) fn has(message: &str) -> bool {
    MESSAGES.contains_key(message)
}

/// The field with a number.
pub(super) fn field(message: &str, number: u64) -> Option<&'static Field> {
    MESSAGES.get(message)?.get(&number)
}

fn parse(text: &'static str) -> Messages {
    let mut messages = Messages::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            current = line.trim();
            messages.entry(current).or_default();
            continue;
        }
        let fields = line
            .split(',')
            .filter_map(|field| parse_field(field.trim()));
        messages.entry(current).or_default().extend(fields);
    }
    messages
}

fn parse_field(text: &'static str) -> Option<(u64, Field)> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let written = words.next()?;
    let (shape, kind) = match written.split_at(1) {
        ("?", kind) => (Shape::Optional, kind),
        ("[", kind) => (Shape::Repeated, kind),
        ("{", kind) => (Shape::Map, kind),
        _ => (Shape::Plain, written),
    };
    let kind = match kind {
        "s" => Kind::Text,
        "i" => Kind::Integer,
        "b" => Kind::Bool,
        "d" => Kind::Double,
        "y" => Kind::Bytes,
        "Time" => Kind::Time,
        "MicroTime" => Kind::MicroTime,
        "Quantity" => Kind::Quantity,
        "IntOrString" => Kind::IntOrString,
        "FieldsV1" => Kind::Json,
        message => Kind::Message(message),
    };
    Some((number, Field { name, shape, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_a_field_names_is_in_the_table() {
        assert!(MESSAGES.len() > 100);
        for (message, fields) in MESSAGES.iter() {
            for field in fields.values() {
                if let Kind::Message(name) = field.kind {
                    assert!(has(name), "{message}.{} names {name}", field.name);
                }
            }
        }
    }
}
