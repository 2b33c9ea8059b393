//! Responses. Refusals are plain text, as the kubelet's are: the API server puts them into a
//! Status of its own.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

/// What goes wrong in the midst of a body.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every response.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Every response.
pub(crate) type Answer = Response<Body>;

/// A response with a whole body.
pub(crate) fn whole(code: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let body = Full::new(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Plain text.
pub(crate) fn text(code: StatusCode, words: impl Into<String>) -> Answer {
    let words = words.into();
    whole(code, "text/plain; charset=utf-8", words.into())
}

/// An object.
pub(crate) fn object(code: StatusCode, object: &Value) -> Answer {
    whole(code, "application/json", object.to_string().into())
}

/// What this node does not serve: a `Status`, so that no client takes it for anything else.
pub(crate) fn not_served(path: &str) -> Answer {
    let code = StatusCode::NOT_IMPLEMENTED;
    let message = format!("the node does not serve {path}");
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "NotImplemented",
        "message": message,
        "code": code.as_u16(),
    });
    object(code, &status)
}
