//! Content negotiation: in what form a client wants the answer, and in what form it sends a body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use swiftlet_client::api::{ApiError, PatchKind};

use crate::error;

/// How a body is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`, of requests alone.
    Protobuf,
}

/// What an answer is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object as it is.
    Object,
    /// `meta.k8s.io` Table of this version.
    Table(&'static str),
    /// `meta.k8s.io` `PartialObjectMetadata` (or its list) of this version.
    Partial(&'static str),
    /// `apidiscovery.k8s.io` `APIGroupDiscoveryList` of this version.
    Discovery(&'static str),
}

/// What a client accepts first of what can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// JSON or YAML.
    pub(crate) encoding: Encoding,
    /// The form.
    pub(crate) form: Form,
}

/// Media types of answers, as an error names them.
const SERVED: &str = "application/json, application/yaml";

/// The media type of bodies in protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Reads the `Accept` header.
pub(crate) fn accept(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let Some(header) = headers.get(ACCEPT) else {
        return Ok(Accepted {
            encoding: Encoding::Json,
            form: Form::Object,
        });
    };
    let header = header.to_str().unwrap_or_default();
    header
        .split(',')
        .find_map(|clause| accept_clause(clause.trim()))
        .ok_or_else(|| error::not_acceptable(SERVED))
}

fn accept_clause(clause: &str) -> Option<Accepted> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "application/*" | "*/*" | "" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            // `q`, `charset`, `stream`: the order of the clauses decides.
            _ => (),
        }
    }
    let form = match (kind, group, version) {
        ("", ..) => Form::Object,
        ("Table", "meta.k8s.io", "v1") => Form::Table("v1"),
        ("Table", "meta.k8s.io", "v1beta1") => Form::Table("v1beta1"),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Form::Partial("v1")
        }
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1beta1") => {
            Form::Partial("v1beta1")
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery("v2"),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Form::Discovery("v2beta1"),
        _ => return None,
    };
    Some(Accepted { encoding, form })
}

/// The encoding of a request's body.
pub(crate) fn body_encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    match content_type(headers) {
        // A client that names none sends JSON.
        "" | "application/json" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        PROTOBUF => Ok(Encoding::Protobuf),
        other => Err(error::unsupported_media_type(format!(
            "the body of the request was in an unknown format ({other}) - accepted media types \
             include: {SERVED}, {PROTOBUF}"
        ))),
    }
}

/// The kind of a patch.
pub(crate) fn patch_kind(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            Err(error::unsupported_media_type(
                "server-side apply is not served by this server; use client-side apply",
            ))
        }
        other => Err(error::unsupported_media_type(format!(
            "the body of the request was in an unknown format ({other}) - accepted media types \
             include: application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json"
        ))),
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    let header = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim()
}
