//! The log of one container, as a response.
//!
//! ```text
//! files   which files there are, through rotations     ┐
//! tail    where the last lines begin                   ├─ source: pieces of text
//! line ▶ printer   what the reader sees of them (pure) ┘       │
//! watch   what the kernel tells of the folder ─────────▶ follow ──▶ channel ──▶ HTTP body
//! ```
//!
//! A piece is read only when the reader has taken the one before: a slow reader costs one piece.

mod files;
mod follow;
mod line;
mod printer;
mod source;
mod tail;
mod watch;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use futures::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use swiftlet_model::ids::{ContainerId, PodKey};
use swiftlet_model::runtime::RuntimeError;
use swiftlet_proto::log_options::LogOptions;

use crate::answer::{Answer, BodyError, text};
use crate::container;
use crate::route::Target;
use crate::server::Serving;

use self::follow::{Log, Pieces};

/// Answers a request for a log.
pub(crate) async fn answer(serving: &Serving, target: &Target, query: &str) -> Answer {
    match begin(serving, target, query).await {
        Ok(answer) => answer,
        Err((code, words)) => text(code, words),
    }
}

type Refusal = (StatusCode, String);

async fn begin(serving: &Serving, target: &Target, query: &str) -> Result<Answer, Refusal> {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
    let options = LogOptions::parse(pairs)
        .map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let name = &target.container;
    let Some(posted) = serving.board.find(&target.namespace, &target.pod) else {
        let words = format!("pod {:?} does not exist", target.pod);
        return Err((StatusCode::NOT_FOUND, words));
    };
    if !container::is_in_pod(&posted.pod, name) {
        let words = format!("container {name:?} not found in pod {:?}", target.pod);
        return Err((StatusCode::NOT_FOUND, words));
    }
    let id = container::with_log(&posted.status, &target.pod, name, options.previous)
        .map_err(|words| (StatusCode::BAD_REQUEST, words))?;
    let place = Arc::clone(&serving.logs).try_acquire_owned();
    let place = place.map_err(|_| {
        let words = "too many logs are read at this moment".to_owned();
        (StatusCode::TOO_MANY_REQUESTS, words)
    })?;
    let path = path(serving, &posted.key, name, &id).await;
    let path = path.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let log = Log {
        path: path.clone(),
        container: id,
        runtime: Arc::clone(&serving.runtime),
        shutdown: serving.shutdown.clone(),
    };
    let pieces = follow::open(log, options).await.map_err(|error| {
        let words = format!("cannot read the log file {}: {error}", path.display());
        (StatusCode::INTERNAL_SERVER_ERROR, words)
    })?;
    let frames = stream::unfold((pieces, place), next);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// The next piece; the place is given back with the last one.
async fn next<P>((mut pieces, place): (Pieces, P)) -> Option<(FrameResult, (Pieces, P))> {
    let piece = pieces.recv().await?;
    let frame = piece.map(Frame::data).map_err(BodyError::from);
    Some((frame, (pieces, place)))
}

type FrameResult = Result<Frame<bytes::Bytes>, BodyError>;

/// Where the runtime writes the log of this container
/// (`BuildContainerLogsDirectory` in `pkg/kubelet/kuberuntime/helpers.go` of Kubernetes).
async fn path(
    serving: &Serving,
    pod: &PodKey,
    name: &str,
    id: &ContainerId,
) -> Result<PathBuf, RuntimeError> {
    let status = serving.runtime.container_status(id).await?;
    let folder = serving.log_root.join(pod.log_folder()).join(name);
    Ok(folder.join(format!("{}.log", status.attempt)))
}
