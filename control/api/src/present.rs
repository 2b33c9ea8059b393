//! Answers as bodies: objects, lists, tables and events in the form that the client accepts.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, RawEvent, WatchKind};

use crate::encode;
use crate::error;
use crate::negotiate::{Accepted, Encoding, Form};
use crate::options::Options;
use crate::registry::Resource;
use crate::table::{self, IncludeObject};
use crate::verb::list::List;

/// How one client wants to see the objects of one resource.
#[derive(Clone, Debug)]
pub(crate) struct View {
    resource: &'static Resource,
    pub(crate) accepted: Accepted,
    include: IncludeObject,
    pretty: bool,
}

impl View {
    pub(crate) fn new(
        resource: &'static Resource,
        accepted: Accepted,
        options: &Options,
    ) -> Result<Self, ApiError> {
        let include = IncludeObject::parse(&options.include_object).ok_or_else(|| {
            error::bad_request(format!(
                "includeObject: Unsupported value: {:?}: supported values: \"Metadata\", \
                 \"None\", \"Object\"",
                options.include_object
            ))
        })?;
        if let Form::Discovery(_) = accepted.form {
            return Err(error::not_acceptable("application/json, application/yaml"));
        }
        Ok(Self {
            resource,
            accepted,
            include,
            pretty: options.pretty,
        })
    }

    /// One object.
    pub(crate) fn object(&self, object: &Bytes) -> Bytes {
        let plain = self.accepted.form == Form::Object
            && self.accepted.encoding == Encoding::Json
            && !self.pretty;
        if plain {
            return object.clone();
        }
        let value = encode::decode_bytes(object);
        // A Status or a Scale has no columns.
        let own = value["kind"] == self.resource.kind;
        let value = match self.accepted.form {
            Form::Table(version) if own => {
                let revision = json!({ "resourceVersion": value["metadata"]["resourceVersion"] });
                self.table(&[value], revision, version)
            }
            Form::Partial(version) if own => partial(&value, version),
            _ => value,
        };
        self.encoded(&value)
    }

    /// A list.
    pub(crate) fn list(&self, list: &List) -> Bytes {
        let mut metadata = json!({ "resourceVersion": list.revision.to_string() });
        if !list.continue_token.is_empty() {
            metadata["continue"] = list.continue_token.as_str().into();
        }
        if let Some(remaining) = list.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        if self.accepted.form == Form::Object
            && self.accepted.encoding == Encoding::Json
            && !self.pretty
        {
            return self.spliced(list, &metadata);
        }
        let items: Vec<Value> = list
            .items
            .iter()
            .map(|item| encode::decode_bytes(item))
            .collect();
        let value = match self.accepted.form {
            Form::Table(version) => self.table(&items, metadata, version),
            Form::Partial(version) => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
                "items": items.iter().map(|item| partial(item, version)).collect::<Vec<_>>(),
            }),
            Form::Object | Form::Discovery(_) => json!({
                "kind": self.resource.list_kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
                "items": items,
            }),
        };
        self.encoded(&value)
    }

    /// A list of the store's own bytes: copied, not encoded again.
    fn spliced(&self, list: &List, metadata: &Value) -> Bytes {
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
            self.resource.list_kind,
            self.resource.api_version(),
        );
        let size: usize = list.items.iter().map(|item| item.len() + 1).sum();
        let mut body = BytesMut::with_capacity(head.len() + size + LIST_TAIL.len());
        body.put_slice(head.as_bytes());
        for (index, item) in list.items.iter().enumerate() {
            if index > 0 {
                body.put_u8(b',');
            }
            body.put_slice(item);
        }
        body.put_slice(LIST_TAIL);
        body.freeze()
    }

    /// Events of a watch, one a line. `first` is cleared after the first table, which alone
    /// carries the columns.
    pub(crate) fn events(&self, events: &[RawEvent], first: &mut bool) -> Bytes {
        let size: usize = events
            .iter()
            .map(|event| event.object.len() + EVENT_FRAME_BYTES)
            .sum();
        let mut body = BytesMut::with_capacity(size);
        for event in events {
            let kind = kind(event.kind);
            if event.kind == WatchKind::Bookmark {
                let object = self.bookmark(event.resource_version, false);
                frame(&mut body, kind, &object);
            } else if self.accepted.form == Form::Object {
                frame(&mut body, kind, &event.object);
            } else {
                let object = self.changed(&event.object, first);
                frame(&mut body, kind, &object);
            }
        }
        body.freeze()
    }

    /// The bookmark after the last initial event.
    pub(crate) fn initial_end(&self, revision: u64) -> Bytes {
        let mut body = BytesMut::new();
        frame(&mut body, "BOOKMARK", &self.bookmark(revision, true));
        body.freeze()
    }

    fn changed(&self, object: &Bytes, first: &mut bool) -> Bytes {
        let value = encode::decode_bytes(object);
        let value = match self.accepted.form {
            Form::Table(version) => {
                let revision = json!({ "resourceVersion": value["metadata"]["resourceVersion"] });
                let mut table = self.table(&[value], revision, version);
                if !std::mem::take(first) {
                    table["columnDefinitions"] = Value::Null;
                }
                table
            }
            Form::Partial(version) => partial(&value, version),
            Form::Object | Form::Discovery(_) => value,
        };
        encode::encode(&value)
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata =
            json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match self.accepted.form {
            Form::Table(version) => json!({
                "kind": "Table",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": { "resourceVersion": revision.to_string() },
                "columnDefinitions": null,
                "rows": [{
                    "cells": [],
                    "object": {
                        "kind": self.resource.kind,
                        "apiVersion": self.resource.api_version(),
                        "metadata": metadata,
                    },
                }],
            }),
            Form::Partial(version) => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
            }),
            Form::Object | Form::Discovery(_) => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
        };
        encode::encode(&object)
    }

    fn table(&self, objects: &[Value], metadata: Value, version: &str) -> Value {
        let now = jiff::Timestamp::now();
        let mut table = table::table(self.resource, objects, metadata, self.include, now);
        table["apiVersion"] = format!("meta.k8s.io/{version}").into();
        table
    }

    fn encoded(&self, value: &Value) -> Bytes {
        encoded(value, self.accepted.encoding, self.pretty)
    }
}

/// The end of a list.
const LIST_TAIL: &[u8] = b"]}\n";
/// `{"type":"MODIFIED","object":}` and a line feed.
const EVENT_FRAME_BYTES: usize = 32;

/// A value in an encoding.
pub(crate) fn encoded(value: &Value, encoding: Encoding, pretty: bool) -> Bytes {
    match encoding {
        Encoding::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => text.into(),
            // JSON is YAML, too.
            Err(_) => encode::encode(value),
        },
        Encoding::Json if pretty => serde_json::to_vec_pretty(value)
            .expect("a JSON value can be written to memory")
            .into(),
        Encoding::Json | Encoding::Protobuf => encode::encode(value),
    }
}

/// An event that ends a watch with an error.
pub(crate) fn error_event(error: &ApiError) -> Bytes {
    let status = serde_json::to_vec(&error.0).unwrap_or_default();
    let mut body = BytesMut::new();
    frame(&mut body, "ERROR", &status);
    body.freeze()
}

fn frame(body: &mut BytesMut, kind: &str, object: &[u8]) {
    body.put_slice(b"{\"type\":\"");
    body.put_slice(kind.as_bytes());
    body.put_slice(b"\",\"object\":");
    body.put_slice(object);
    body.put_slice(b"}\n");
}

fn kind(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Added => "ADDED",
        WatchKind::Modified => "MODIFIED",
        WatchKind::Deleted => "DELETED",
        WatchKind::Bookmark => "BOOKMARK",
    }
}

fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object["metadata"],
    })
}
