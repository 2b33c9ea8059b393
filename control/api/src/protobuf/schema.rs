//! The table of messages, read once from `schema.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How often a field may occur, and when JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once; zero means that nobody set it.
    Set,
    /// Once or never; zero is a value.
    Kept,
    /// Many times.
    Repeated,
    /// Many times, each with a key.
    Map,
    /// Once; a message whose fields belong to the parent.
    Inline,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Bool,
    Double,
    /// Base64 in JSON.
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message of bytes that are JSON.
    Json,
    /// Another message of the table.
    Message(&'static str),
}

impl Kind {
    /// Whether JSON clients leave it out when it is zero. They leave out no structs, and
    /// quantities, times and `IntOrString` are structs.
    pub(super) fn is_scalar(self) -> bool {
        matches!(self, Self::Text | Self::Integer | Self::Bool | Self::Double)
    }
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
}

impl Field {
    /// The message that the field holds.
    pub(super) fn message(&self) -> Option<&'static Message> {
        match self.kind {
            Kind::Message(name) => message(name),
            _ => None,
        }
    }
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    fields: HashMap<u64, Field>,
}

impl Message {
    /// The field with a number.
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.fields.get(&number)
    }
}

static MESSAGES: LazyLock<HashMap<&'static str, Message>> =
    LazyLock::new(|| parse(include_str!("schema.txt")));

/// The message with a name; that of an object is its kind.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    MESSAGES.get(name)
}

fn parse(text: &'static str) -> HashMap<&'static str, Message> {
    let mut messages = HashMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            current = line;
        }
        let message = messages.entry(current).or_insert_with(|| Message {
            name: current,
            fields: HashMap::new(),
        });
        if line.starts_with(' ') {
            let fields = line.split(',').map(str::trim);
            message.fields.extend(fields.filter_map(parse_field));
        }
    }
    messages
}

fn parse_field(text: &'static str) -> Option<(u64, Field)> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let written = words.next()?;
    let (shape, kind) = match written.split_at_checked(1)? {
        _ if name == "-" => (Shape::Inline, written),
        ("?", kind) => (Shape::Kept, kind),
        ("[", kind) => (Shape::Repeated, kind),
        ("{", kind) => (Shape::Map, kind),
        _ => (Shape::Set, written),
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
mod tests;
