//! Objects in protobuf, which newer clients send even to servers that answer in JSON.
//!
//! The body is the four bytes `k8s\0` and a `runtime.Unknown` message: type, then the encoded object.
//! It is turned into the JSON that the same client would have sent, by a table of field numbers. A
//! field that is not in the table is refused, never dropped.

mod schema;
mod wire;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use schema::{Field, Kind, Shape};
use wire::{Reader, Wire};

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Messages within messages; a pod has eight levels.
const DEPTH_MAX: usize = 32;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    /// The body is no protobuf, or ends early.
    #[error("the body is not a valid protobuf message")]
    Malformed,
    /// The kind is not known here.
    #[error("objects of the kind {0:?} are not served in protobuf; send application/json")]
    UnknownKind(String),
    /// A field is not known here.
    #[error("field {number} of {message} is not served in protobuf; send application/json")]
    UnknownField {
        /// The message.
        message: String,
        /// The field's number.
        number: u64,
    },
}

/// Turns a body into the object's JSON. `default_kind` is for bodies that do not name theirs.
pub(crate) fn decode(body: &[u8], default_kind: &str) -> Result<Value, ProtobufError> {
    let unknown = body.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed)?;
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) =
        (String::new(), String::new(), &[]);
    let mut reader = Reader::new(unknown);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => (api_version, kind) = type_of(type_meta)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => (),
        }
    }
    if kind.is_empty() {
        kind = default_kind.into();
    }
    if !schema::has(&kind) {
        return Err(ProtobufError::UnknownKind(kind));
    }
    let mut object = Map::new();
    message(&kind, raw, &mut object, DEPTH_MAX)?;
    object.insert("kind".into(), kind.into());
    if !api_version.is_empty() {
        object.insert("apiVersion".into(), api_version.into());
    }
    Ok(Value::Object(object))
}

fn type_of(bytes: &[u8]) -> Result<(String, String), ProtobufError> {
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => api_version = wire.text()?,
            2 => kind = wire.text()?,
            _ => (),
        }
    }
    Ok((api_version, kind))
}

/// Adds a message's fields to an object.
fn message(
    name: &str,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::Malformed)?;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        let field = schema::field(name, number).ok_or_else(|| ProtobufError::UnknownField {
            message: name.into(),
            number,
        })?;
        match field.shape {
            _ if field.name == "-" => {
                if let Kind::Message(inner) = field.kind {
                    message(inner, wire.bytes()?, object, depth)?;
                }
            }
            Shape::Repeated => repeated(field, wire, object, depth)?,
            Shape::Map => {
                let (key, value) = entry(field, wire.bytes()?, depth)?;
                let map = object.entry(field.name).or_insert_with(|| json!({}));
                map[key] = value;
            }
            Shape::Optional | Shape::Plain => {
                let value = single(field, wire, depth)?;
                // A client writes plain fields even when nobody set them.
                if field.shape == Shape::Optional || !is_zero(&value) {
                    object.insert(field.name.into(), value);
                }
            }
        }
    }
    Ok(())
}

fn repeated(
    field: &Field,
    wire: Wire<'_>,
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let list = object.entry(field.name).or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else {
        return Err(ProtobufError::Malformed);
    };
    match (field.kind, wire) {
        // Numbers may come packed.
        (Kind::Integer, Wire::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while let Some(number) = reader.next_number()? {
                list.push(number.cast_signed().into());
            }
        }
        _ => list.push(single(field, wire, depth)?),
    }
    Ok(())
}

fn entry(field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut value = match field.kind {
        Kind::Text | Kind::Bytes => json!(""),
        _ => json!({}),
    };
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = wire.text()?,
            2 => value = single(field, wire, depth)?,
            _ => return Err(ProtobufError::Malformed),
        }
    }
    Ok((key, value))
}

fn single(field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match field.kind {
        Kind::Text => wire.text()?.into(),
        Kind::Integer => wire.number()?.cast_signed().into(),
        Kind::Bool => (wire.number()? != 0).into(),
        Kind::Double => f64::from_bits(wire.fixed()?).into(),
        Kind::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Kind::Time => time(wire.bytes()?, false)?,
        Kind::MicroTime => time(wire.bytes()?, true)?,
        Kind::Quantity => first_text(wire.bytes()?)?,
        Kind::IntOrString => int_or_string(wire.bytes()?)?,
        Kind::Json => {
            let text = first_text(wire.bytes()?)?;
            serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default()
        }
        Kind::Message(name) => {
            let mut object = Map::new();
            message(name, wire.bytes()?, &mut object, depth)?;
            Value::Object(object)
        }
    })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// The message's field 1, a text.
fn first_text(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = String::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            text = wire.text()?;
        }
    }
    Ok(text.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.next()? {
        match field {
            1 => is_text = wire.number()? == 1,
            2 => number = wire.number()?.cast_signed(),
            3 => text = wire.text()?,
            _ => return Err(ProtobufError::Malformed),
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// A time; an empty message is the zero time, which JSON writes as null.
fn time(bytes: &[u8], micros: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (None, 0);
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.next()? {
        match field {
            1 => seconds = Some(wire.number()?.cast_signed()),
            2 => nanos = i32::try_from(wire.number()?).unwrap_or_default(),
            _ => return Err(ProtobufError::Malformed),
        }
    }
    let Some(seconds) = seconds else {
        return Ok(Value::Null);
    };
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Malformed)?;
    let form = if micros {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(time.strftime(form).to_string().into())
}

#[cfg(test)]
mod tests;
