//! Objects in protobuf, which newer clients send even to servers that answer in JSON.
//!
//! A body is four bytes and a `runtime.Unknown` message: the object's type and the encoded object.
//! [`decode`] turns it into the JSON that the same client would have sent, by a table of field
//! numbers, so that nothing behind it has to know. Fields that are not in the table are skipped, as
//! Kubernetes does: newer clients write theirs even when they are not set.

mod message;
mod schema;
mod wire;

use serde_json::{Map, Value};

use wire::{Reader, WireError};

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    /// The first bytes are others.
    #[error("the body does not appear to be a protobuf message, expected prefix \"k8s\\0\"")]
    NoPrefix,
    /// The object inside the envelope is compressed, or the like.
    #[error("the content encoding {0:?} is not supported in protobuf")]
    Encoded(String),
    /// The kind is not known here.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The kind that the body names.
        kind: String,
        /// Its version, with the group.
        api_version: String,
    },
    /// The bytes around the object cannot be read.
    #[error("cannot read the envelope")]
    Envelope(#[from] WireError),
    /// A message's bytes cannot be read.
    #[error("cannot read the fields of {message}: {source}")]
    Message {
        /// The message.
        message: &'static str,
        /// What is wrong.
        source: WireError,
    },
    /// A field cannot be read.
    #[error("cannot read {message}.{field}: {source}")]
    Field {
        /// The message.
        message: &'static str,
        /// The field's name in JSON.
        field: &'static str,
        /// What is wrong.
        source: WireError,
    },
}

/// Turns a body into the object's JSON. `default_kind` is for bodies that do not name theirs.
pub(crate) fn decode(body: &[u8], default_kind: &str) -> Result<Value, ProtobufError> {
    let mut envelope = Envelope::read(body)?;
    if envelope.kind.is_empty() {
        envelope.kind = default_kind.into();
    }
    let Some(message) = schema::message(&envelope.kind) else {
        return Err(ProtobufError::UnknownKind {
            kind: envelope.kind,
            api_version: envelope.api_version,
        });
    };
    let mut object = Map::new();
    message::read(message, envelope.raw, &mut object)?;
    object.insert("kind".into(), envelope.kind.into());
    if !envelope.api_version.is_empty() {
        object.insert("apiVersion".into(), envelope.api_version.into());
    }
    Ok(Value::Object(object))
}

/// `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'b> {
    api_version: String,
    kind: String,
    /// The encoded object.
    raw: &'b [u8],
}

impl<'b> Envelope<'b> {
    fn read(body: &'b [u8]) -> Result<Self, ProtobufError> {
        let unknown = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoPrefix)?;
        let mut envelope = Self::default();
        let mut reader = Reader::new(unknown);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => envelope.read_type(wire.bytes()?)?,
                2 => envelope.raw = wire.bytes()?,
                3 => match wire.text()? {
                    "" => (),
                    encoding => return Err(ProtobufError::Encoded(encoding.into())),
                },
                // The content type says again what the header said.
                _ => (),
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => self.api_version = wire.text()?.into(),
                2 => self.kind = wire.text()?.into(),
                _ => (),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
