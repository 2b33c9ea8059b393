//! From a message's bytes to a JSON object.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::ProtobufError;
use super::schema::{Field, Kind, Message, Shape};
use super::wire::{Reader, Wire, WireError};

/// Adds a message's fields to an object.
///
/// This calls itself for messages within messages. How deep is bounded by the table, not by the
/// bytes: no message contains itself.
pub(super) fn read(
    message: &'static Message,
    bytes: &[u8],
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    loop {
        let next = reader.next().map_err(|source| ProtobufError::Message {
            message: message.name,
            source,
        })?;
        let Some((number, wire)) = next else {
            return Ok(());
        };
        if let Some(field) = message.field(number) {
            add(field, wire, object).map_err(|trouble| trouble.at(message, field))?;
        }
    }
}

/// A field that cannot be read: either itself, or one of a message in it.
enum Trouble {
    Here(WireError),
    Inside(ProtobufError),
}

impl Trouble {
    fn at(self, message: &'static Message, field: &'static Field) -> ProtobufError {
        match self {
            Self::Here(source) => ProtobufError::Field {
                message: message.name,
                field: field.name,
                source,
            },
            Self::Inside(error) => error,
        }
    }
}

impl From<WireError> for Trouble {
    fn from(error: WireError) -> Self {
        Self::Here(error)
    }
}

/// Adds one field, as often as it occurs: of a single value the last one counts, messages are
/// merged.
fn add(
    field: &'static Field,
    wire: Wire<'_>,
    object: &mut Map<String, Value>,
) -> Result<(), Trouble> {
    match (field.shape, field.kind) {
        (Shape::Inline, Kind::Message(_)) => into_message(field, wire, object)?,
        (Shape::Repeated, _) => {
            let list = object.entry(field.name).or_insert(Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                push(field, wire, list)?;
            }
        }
        (Shape::Map, _) => {
            let (key, value) = entry(field, wire.bytes()?)?;
            let map = object.entry(field.name).or_insert_with(empty);
            map[key] = value;
        }
        (_, Kind::Message(_)) => {
            let inner = object.entry(field.name).or_insert_with(empty);
            if let Value::Object(inner) = inner {
                into_message(field, wire, inner)?;
            }
        }
        (shape, kind) => {
            let value = single(field, wire)?;
            if shape == Shape::Set && kind.is_scalar() && is_zero(&value) {
                object.remove(field.name);
            } else {
                object.insert(field.name.into(), value);
            }
        }
    }
    Ok(())
}

fn empty() -> Value {
    Value::Object(Map::new())
}

fn push(field: &'static Field, wire: Wire<'_>, list: &mut Vec<Value>) -> Result<(), Trouble> {
    match (field.kind, wire) {
        // Numbers may come packed.
        (Kind::Integer, Wire::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while let Some(number) = reader.next_number()? {
                list.push(number.cast_signed().into());
            }
        }
        _ => list.push(single(field, wire)?),
    }
    Ok(())
}

/// An entry of a map: a message of key and value. Either is empty if it is not there.
fn entry(field: &'static Field, bytes: &[u8]) -> Result<(String, Value), Trouble> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = wire.text()?.into(),
            2 => value = Some(single(field, wire)?),
            _ => (),
        }
    }
    match value {
        Some(value) => Ok((key, value)),
        None => Ok((key, single(field, Wire::Bytes(b""))?)),
    }
}

/// A value by itself.
fn single(field: &'static Field, wire: Wire<'_>) -> Result<Value, Trouble> {
    Ok(match field.kind {
        Kind::Text => wire.text()?.into(),
        Kind::Integer => wire.number()?.cast_signed().into(),
        Kind::Bool => (wire.number()? != 0).into(),
        Kind::Double => f64::from_bits(wire.fixed64()?).into(),
        Kind::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Kind::Time => time(wire.bytes()?, "%Y-%m-%dT%H:%M:%SZ")?,
        Kind::MicroTime => time(wire.bytes()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Kind::Quantity => {
            let text = first(wire.bytes()?)?;
            std::str::from_utf8(text)
                .map_err(|_| WireError::NotUtf8)?
                .into()
        }
        Kind::IntOrString => int_or_string(wire.bytes()?)?,
        Kind::Json => match first(wire.bytes()?)? {
            b"" => Value::Null,
            json => serde_json::from_slice(json).map_err(|_| WireError::NotJson)?,
        },
        Kind::Message(_) => {
            let mut object = Map::new();
            into_message(field, wire, &mut object)?;
            Value::Object(object)
        }
    })
}

fn into_message(
    field: &'static Field,
    wire: Wire<'_>,
    object: &mut Map<String, Value>,
) -> Result<(), Trouble> {
    let bytes = wire.bytes()?;
    match field.message() {
        Some(message) => read(message, bytes, object).map_err(Trouble::Inside),
        None => Ok(()),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// The bytes of a message's field 1.
fn first(bytes: &[u8]) -> Result<&[u8], WireError> {
    let mut found: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            found = wire.bytes()?;
        }
    }
    Ok(found)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.next()? {
        match field {
            1 => is_text = wire.number()? == 1,
            2 => number = wire.number()?.cast_signed(),
            3 => text = wire.text()?,
            _ => (),
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// A time; an empty message is the zero time, which JSON writes as null.
fn time(bytes: &[u8], form: &str) -> Result<Value, WireError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.next()? {
        match field {
            1 => seconds = wire.number()?.cast_signed(),
            2 => nanoseconds = i32::try_from(wire.number()?).map_err(|_| WireError::NotATime)?,
            _ => (),
        }
    }
    let time = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| WireError::NotATime)?;
    Ok(time.strftime(form).to_string().into())
}
