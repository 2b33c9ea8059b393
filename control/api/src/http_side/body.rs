//! Bodies of requests and responses.

use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use swiftlet_client::api::ApiError;

use crate::error;

/// An error of a body or a mounted service.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The body of a response: whole, or a stream.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Largest body of a request, in bytes (Kubernetes' limit).
const REQUEST_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A whole body.
pub(crate) fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Reads the body of a request.
pub(super) async fn read(body: Incoming) -> Result<Bytes, ApiError> {
    match Limited::new(body, REQUEST_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(why) if why.is::<LengthLimitError>() => {
            Err(error::request_too_large(REQUEST_BYTES_MAX))
        }
        Err(why) => Err(error::bad_request(format!(
            "cannot read the body of the request: {why}"
        ))),
    }
}
