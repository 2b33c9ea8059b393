//! The log of one container, as a response.
//!
//! ```text
//! folder  where they are, without following links
//! files   which files there are, through rotations     ┐
//! tail    where the last lines begin                   ├─ source: pieces of text
//! line ▶ printer   what the reader sees of them (pure) ┘       │
//! watch   what the kernel tells of the folder ─────────▶ follow ──▶ channel ──▶ HTTP body
//! ```
//!
//! A piece is read only when the reader has taken the one before: a slow reader costs one piece.

mod files;
mod folder;
mod follow;
mod line;
mod printer;
mod source;
mod tail;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use swiftlet_model::ids::ContainerId;
use swiftlet_proto::log_options::LogOptions;

use crate::answer::{Answer, BodyError, text};
use crate::container;
use crate::route::Target;
use crate::server::Serving;

use self::folder::LogFolder;
use self::follow::{Log, Pieces, StateOf};

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
    let status = serving.runtime.container_status(&id).await;
    let status = status.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    // `BuildContainerLogsDirectory` in `pkg/kubelet/kuberuntime/helpers.go` of Kubernetes.
    let (pod, file) = (posted.key.log_folder(), format!("{}.log", status.attempt));
    let unreadable = |error| {
        let path = serving.log_root.join(&pod).join(name).join(&file);
        let words = format!("cannot read the log file {}: {error}", path.display());
        (StatusCode::INTERNAL_SERVER_ERROR, words)
    };
    let folder = LogFolder::open(&serving.log_root, &[&pod, name]).map_err(unreadable)?;
    let log = Log {
        folder: Arc::new(folder),
        name: file.clone(),
        state: state_of(serving, id),
        shutdown: serving.shutdown.clone(),
    };
    let pieces = follow::open(log, options).await.map_err(unreadable)?;
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

fn state_of(serving: &Serving, id: ContainerId) -> StateOf {
    let (runtime, id) = (Arc::clone(&serving.runtime), Arc::new(id));
    Box::new(move || {
        let (runtime, id) = (Arc::clone(&runtime), Arc::clone(&id));
        Box::pin(async move { Ok(runtime.container_status(&id).await?.state) })
    })
}
