//! GET of pods/log: the options are checked here, the text comes from the node and is passed on
//! piece by piece, as fast as the client takes it.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Empty, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use swiftlet_client::api::ApiError;
use swiftlet_proto::log_options::{LogOptions, LogOptionsError};
use tokio_util::task::AbortOnDropHandle;

use super::client::NodeClient;
use super::target::{self, Place, Pod};
use crate::api::ApiServer;
use crate::error;
use crate::http_side::{BoxError, ResponseBody, full};
use crate::registry::{FieldError, FieldErrorKind};
use crate::route::Target;

/// How long the node may take to begin its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a node's refusal that are passed on (`maxReadLength` of
/// `pkg/registry/generic/rest/response_checker.go` of Kubernetes).
const REFUSAL_BYTES_MAX: usize = 50_000;
/// How long it may take (`UpgradeAwareHandler` of `k8s.io/apimachinery/pkg/util/proxy`).
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// Answers a request for a log.
pub(super) async fn answer(
    api: &ApiServer,
    client: &NodeClient,
    target: &Target,
    pod: &Pod,
    request: &Request<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    if *request.method() != Method::GET {
        return Err(error::method_not_allowed());
    }
    let query = request.uri().query().unwrap_or_default();
    let options = options(&target.name, query)?;
    let container = pod.container(&options.container)?;
    let Some(node) = pod.node() else {
        // Nothing has run yet, and so nothing has been written.
        return Ok(plain(full(Bytes::new())));
    };
    let place = target::place(api, node)?;
    let session = client.session()?;
    let path = path(target, &container, query);
    let (connection, response) = ask(client, &place, &path, options.skip_tls_verify).await?;
    if response.status() != StatusCode::OK {
        return Err(refusal(response).await);
    }
    let held = (connection, session);
    let pieces = BodyStream::new(response.into_body()).map(move |piece| {
        // The connection and the place live as long as the body.
        let _ = &held;
        piece.map_err(BoxError::from)
    });
    let pieces = pieces.take_until(api.shutdown_token().cancelled_owned());
    Ok(plain(StreamBody::new(pieces).boxed_unsync()))
}

/// The options of a query, or a refusal in Kubernetes' words.
pub(super) fn options(pod: &str, query: &str) -> Result<LogOptions, ApiError> {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
    LogOptions::parse(pairs).map_err(|wrong| {
        let field = match &wrong {
            LogOptionsError::Malformed { .. } => return error::bad_request(wrong.to_string()),
            LogOptionsError::Invalid { field, value, why } => {
                FieldError::invalid(*field, json!(value), *why)
            }
            LogOptionsError::Stream(value) => FieldError::new(
                FieldErrorKind::NotSupported,
                "stream",
                json!(value),
                "supported values: \"All\", \"Stderr\", \"Stdout\"",
            ),
            LogOptionsError::Together { field, why } => FieldError::forbidden(*field, *why),
        };
        error::invalid_kind("", "PodLogOptions", pod, &[field])
    })
}

/// The node's path for it. The container is part of the path there; all else is as it was.
fn path(target: &Target, container: &str, query: &str) -> String {
    let mut onward = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_node_s = !matches!(&*name, "container" | "insecureSkipTLSVerifyBackend");
        if is_node_s {
            onward.append_pair(&name, &value);
        }
    }
    let Target {
        namespace, name, ..
    } = target;
    let onward = onward.finish();
    format!("/containerLogs/{namespace}/{name}/{container}?{onward}")
}

type Asked = (AbortOnDropHandle<()>, Response<Incoming>);

async fn ask(
    client: &NodeClient,
    place: &Place,
    path: &str,
    unverified: bool,
) -> Result<Asked, ApiError> {
    let stream = client.connect(place, unverified).await?;
    let broken = |why: hyper::Error| error::internal(format_args!("node {}: {why}", place.node));
    let request = Request::get(path)
        .header(HOST, format!("{}:{}", place.address, place.port))
        .body(Empty::<Bytes>::new())
        .map_err(error::internal)?;
    let asked = tokio::time::timeout(ANSWER_LIMIT, async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async {
            // What breaks is seen by whoever reads the body.
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await?;
        Ok((connection, response))
    });
    let asked = asked.await.map_err(|_| {
        error::internal(format_args!("node {} does not answer in time", place.node))
    })?;
    asked.map_err(broken)
}

/// The words of a node's refusal: not more of them, and not for longer, than a client is to wait
/// for.
pub(super) async fn words_of(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect();
    match tokio::time::timeout(REFUSAL_LIMIT, body).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Ok(Err(why)) => why.to_string(),
        Err(_) => "the node does not end its refusal".to_owned(),
    }
}

/// A node's refusal as the client sees it.
async fn refusal(response: Response<Incoming>) -> ApiError {
    let code = response.status();
    let text = words_of(response).await;
    match code {
        StatusCode::BAD_REQUEST => error::bad_request(text),
        StatusCode::NOT_FOUND => error::failure(code, "NotFound", text),
        StatusCode::TOO_MANY_REQUESTS => error::too_many_requests(text),
        StatusCode::UNPROCESSABLE_ENTITY => error::failure(code, "Invalid", text),
        // That the node refuses this server is nothing that the client could mend.
        _ => error::internal(text),
    }
}

fn plain(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let not_kept = HeaderValue::from_static("no-cache, private");
    headers.insert(CACHE_CONTROL, not_kept);
    response
}
