//! From a request's body to a checked object.

use serde_json::Value;
use swiftlet_client::api::ApiError;

use crate::error;
use crate::negotiate::Encoding;
use crate::options::FieldValidation;
use crate::protobuf::{self, ProtobufError};
use crate::registry::Resource;
use crate::strategy;

/// Reads a body. An empty one is no object. `kind` is that of a protobuf body which names none.
pub(crate) fn body(bytes: &[u8], encoding: Encoding, kind: &str) -> Result<Value, ApiError> {
    let value: Result<Value, String> = match encoding {
        Encoding::Json => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        Encoding::Yaml => std::str::from_utf8(bytes)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_saphyr::from_str(text).map_err(|error| error.to_string())),
        Encoding::Protobuf => {
            return protobuf::decode(bytes, kind).map_err(|why| not_protobuf(kind, &why));
        }
    };
    match value {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(error::bad_request(
            "couldn't get version/kind; the body of the request is not an object",
        )),
        Err(why) => Err(error::bad_request(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))),
    }
}

fn not_protobuf(kind: &str, why: &ProtobufError) -> ApiError {
    error::bad_request(match why {
        ProtobufError::UnknownKind {
            kind: found,
            api_version,
        } => format!(
            "{found} in version \"{version}\" cannot be handled as a {kind}: {why}",
            version = short_version(api_version)
        ),
        _ => format!("the object provided is unrecognized (must be of type {kind}): {why}"),
    })
}

/// Checks that a value is an object of a kind, and says so in it where the client did not.
pub(crate) fn expect_kind(
    value: &mut Value,
    api_version: &str,
    kind: &str,
) -> Result<(), ApiError> {
    if !value.is_object() {
        return Err(error::bad_request(format!(
            "a {kind} in version \"{version}\" is an object, and this is none",
            version = short_version(api_version)
        )));
    }
    let found_version = value["apiVersion"].as_str().unwrap_or_default();
    let found_kind = value["kind"].as_str().unwrap_or_default();
    if !found_version.is_empty() && found_version != api_version {
        return Err(error::bad_request(format!(
            "the API version in the data ({found_version}) does not match the expected API \
             version ({api_version})"
        )));
    }
    if !found_kind.is_empty() && found_kind != kind {
        return Err(error::bad_request(format!(
            "{found_kind} in version \"{version}\" cannot be handled as a {kind}: no kind \
             \"{found_kind}\" is expected here",
            version = short_version(api_version)
        )));
    }
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    Ok(())
}

/// Checks the types of all fields and drops unknown ones. Answers the object and warnings about
/// what was dropped.
pub(crate) fn checked(
    resource: &Resource,
    value: &Value,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let object = resource.strategy.check_types(value).map_err(|why| {
        error::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}",
            kind = resource.kind,
            version = resource.name.version,
        ))
    })?;
    if validation == FieldValidation::Ignore {
        return Ok((object, Vec::new()));
    }
    let unknown: Vec<String> = strategy::unknown_fields(value, &object)
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect();
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        return Err(error::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding \
             error: {list}",
            kind = resource.kind,
            version = resource.name.version,
            list = unknown.join(", "),
        )));
    }
    Ok((object, unknown))
}

/// `v1` of `apps/v1`.
fn short_version(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}
