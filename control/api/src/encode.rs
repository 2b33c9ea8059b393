//! Objects as bytes: where they are kept, and where their revision is written.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use swiftlet_store::{Entry, Key, Template};

use crate::registry::Resource;

/// Encodes an object for the store. The resourceVersion is left empty; the store's writer fills it
/// in.
pub(crate) fn template(object: &Value) -> Template {
    let mut bytes = Vec::with_capacity(ENCODED_BYTES_TYPICAL);
    let mut slot = None;
    let Value::Object(members) = object else {
        write(&mut bytes, object);
        return Template {
            bytes: bytes.into(),
            slot: None,
        };
    };
    bytes.push(b'{');
    for (index, (name, value)) in members.iter().enumerate() {
        separator(&mut bytes, index);
        key(&mut bytes, name);
        match value {
            Value::Object(metadata) if name == "metadata" => {
                slot = Some(write_metadata(&mut bytes, metadata));
            }
            _ => write(&mut bytes, value),
        }
    }
    bytes.push(b'}');
    Template {
        bytes: bytes.into(),
        slot,
    }
}

/// A pod with a container or two.
const ENCODED_BYTES_TYPICAL: usize = 2048;

/// Writes metadata with an empty resourceVersion first, and answers where its text goes.
fn write_metadata(bytes: &mut Vec<u8>, metadata: &Map<String, Value>) -> usize {
    bytes.extend_from_slice(b"{\"resourceVersion\":\"");
    let slot = bytes.len();
    bytes.push(b'"');
    for (name, value) in metadata
        .iter()
        .filter(|(name, _)| *name != "resourceVersion")
    {
        bytes.push(b',');
        key(bytes, name);
        write(bytes, value);
    }
    bytes.push(b'}');
    slot
}

fn separator(bytes: &mut Vec<u8>, index: usize) {
    if index > 0 {
        bytes.push(b',');
    }
}

fn key(bytes: &mut Vec<u8>, name: &str) {
    serde_json::to_writer(&mut *bytes, name).expect("a string can be written to memory");
    bytes.push(b':');
}

fn write(bytes: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(bytes, value).expect("a JSON value can be written to memory");
}

/// Encodes a value.
pub(crate) fn encode(value: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(ENCODED_BYTES_TYPICAL);
    write(&mut bytes, value);
    bytes.into()
}

/// Decodes a stored object.
pub(crate) fn decode(entry: &Entry) -> Value {
    decode_bytes(&entry.value)
}

/// Decodes the bytes of a stored object.
pub(crate) fn decode_bytes(bytes: &[u8]) -> Value {
    // What is not JSON did not come through this server; it has no fields then.
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// Where the objects of a resource are kept, with a `/` at the end.
pub(crate) fn prefix(resource: &Resource, namespace: &str) -> String {
    let mut prefix = String::from("/registry/");
    if !resource.name.group.is_empty() {
        prefix.push_str(resource.name.group);
        prefix.push('/');
    }
    prefix.push_str(resource.name.plural);
    prefix.push('/');
    if !namespace.is_empty() {
        prefix.push_str(namespace);
        prefix.push('/');
    }
    prefix
}

/// Where one object is kept.
pub(crate) fn path(resource: &Resource, namespace: &str, name: &str) -> String {
    let mut path = prefix(resource, namespace);
    path.push_str(name);
    path
}

/// Where one object is kept, as the store wants it.
pub(crate) fn store_key(resource: &Resource, namespace: &str, name: &str) -> Key {
    Key::from(path(resource, namespace, name).as_str())
}

/// `metadata`, created when missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let members = object.as_object_mut().expect("it was made an object above");
    let metadata = members
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata
        .as_object_mut()
        .expect("it was made an object above")
}

/// A string in `metadata`; empty when missing.
pub(crate) fn metadata_str<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The parts of an object that label selectors and names need; the rest is skipped, not decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    /// `metadata`.
    pub(crate) metadata: HeadMetadata,
}

/// See [`Head`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HeadMetadata {
    /// `metadata.name`.
    pub(crate) name: String,
    /// `metadata.namespace`.
    pub(crate) namespace: String,
    /// `metadata.labels`.
    pub(crate) labels: std::collections::BTreeMap<String, String>,
}
