//! `/openapi/v2` in protobuf, the only form that kubectl before 1.28 reads: which kinds take which
//! query parameters when they are patched. Message and field numbers are those of gnostic's
//! `openapi_v2.proto`.

use bytes::Bytes;

use crate::registry::Resource;

/// The query parameters that kubectl looks for.
const PARAMETERS: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

/// The document.
pub(crate) fn document(resources: &[Resource], version: &str) -> Bytes {
    let mut document = Message::default();
    let mut info = Message::default();
    info.text(1, "Kubernetes");
    info.text(2, version);
    let mut paths = Message::default();
    for resource in resources {
        let mut item = Message::default();
        item.message(8, &patch(resource));
        let mut named = Message::default();
        named.text(1, &path(resource));
        named.message(2, &item);
        paths.message(2, &named);
    }
    document.text(1, "2.0");
    document.message(2, &info);
    document.message(8, &paths);
    document.0.into()
}

fn path(resource: &Resource) -> String {
    let root = if resource.name.group.is_empty() {
        "api"
    } else {
        "apis"
    };
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let version = resource.api_version();
    format!("/{root}/{version}{scope}/{}/{{name}}", resource.name.plural)
}

/// The PATCH operation: its parameters, and in an extension the kind that it is about.
fn patch(resource: &Resource) -> Message {
    let mut operation = Message::default();
    for name in PARAMETERS {
        let mut query = Message::default();
        query.text(2, "query");
        query.text(4, name);
        query.text(6, "string");
        // ParametersItem → Parameter → NonBodyParameter → QueryParameterSubSchema.
        operation.message(8, &query.within(3).within(2).within(1));
    }
    let mut any = Message::default();
    any.text(
        2,
        &format!(
            "group: \"{}\"\nkind: {}\nversion: {}\n",
            resource.name.group, resource.kind, resource.name.version
        ),
    );
    let mut extension = Message::default();
    extension.text(1, "x-kubernetes-group-version-kind");
    extension.message(2, &any);
    operation.message(13, &extension);
    operation
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(&mut self, number: u8, text: &str) {
        self.bytes(number, text.as_bytes());
    }

    fn message(&mut self, number: u8, message: &Self) {
        self.bytes(number, &message.0);
    }

    /// This message as a field of another.
    fn within(&self, number: u8) -> Self {
        let mut outer = Self::default();
        outer.message(number, self);
        outer
    }

    fn bytes(&mut self, number: u8, bytes: &[u8]) {
        // Field numbers here are below 16 and fit one byte with the wire type.
        self.0.push(number << 3 | 2);
        let mut length = bytes.len();
        loop {
            let [low, ..] = length.to_le_bytes();
            length >>= 7;
            if length == 0 {
                self.0.push(low & 0x7f);
                break;
            }
            self.0.push(low | 0x80);
        }
        self.0.extend_from_slice(bytes);
    }
}
