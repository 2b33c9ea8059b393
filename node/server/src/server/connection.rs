//! One connection: handshake, identity, requests.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Serving;
use crate::access::{Caller, of_certificate};
use crate::answer::{Answer, not_served, text};
use crate::route::{Route, route};
use crate::{logs, pods, streams};

/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of a request (Kubernetes: 32 s).
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Header fields of a request.
const HEADERS_MAX: usize = 128;
/// Bytes of a request's head: an address of 64 KiB, which is the most that the parser takes, and
/// as much again. Who is unknown may make the node keep so much.
const HEADER_BYTES_MAX: usize = 128 << 10;

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, acceptor: TlsAcceptor, serving: Arc<Serving>) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let tls = tokio::select! {
        biased;
        () = serving.shutdown.cancelled() => return,
        handshake = handshake => match handshake {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake timed out"),
        },
    };
    let certificates = tls.get_ref().1.peer_certificates();
    let caller = certificates
        .and_then(|list| list.first())
        .and_then(of_certificate);
    let service = service_fn(|request| {
        let (serving, caller) = (Arc::clone(&serving), caller.clone());
        async move { Ok::<_, Infallible>(respond(&serving, caller.as_ref(), request).await) }
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(tls), service);
    let mut connection = pin!(connection.with_upgrades());
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = serving.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection failed");
    }
}

async fn respond(serving: &Serving, caller: Option<&Caller>, request: Request<Incoming>) -> Answer {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Who may not ask is not told what there is.
    let access = &serving.access;
    let checked = access.check(caller, &method, &path, request.headers());
    let answer = match checked.await {
        Ok(()) => answer(serving, &method, &path, request).await,
        Err(refusal) => refusal,
    };
    if method == Method::HEAD {
        let nothing = http_body_util::Empty::new().map_err(|never| match never {});
        return answer.map(|_| nothing.boxed_unsync());
    }
    answer
}

async fn answer(
    serving: &Serving,
    method: &Method,
    path: &str,
    request: Request<Incoming>,
) -> Answer {
    match route(method, path) {
        Route::Health => text(StatusCode::OK, "ok"),
        Route::Pods => pods::posted(&serving.board),
        Route::RunningPods => pods::running(serving.runtime.as_ref()).await,
        // What a client sends and nobody reads would hide that the client is gone.
        Route::Logs(_) if !request.body().is_end_stream() => {
            text(StatusCode::BAD_REQUEST, "a log is asked for without a body")
        }
        Route::Logs(target) => {
            let query = request.uri().query().unwrap_or_default();
            logs::answer(serving, &target, query).await
        }
        Route::Exec(target) => streams::exec(serving, &target, request).await,
        Route::Attach(target) => streams::attach(serving, &target, request).await,
        Route::PortForward(target) => streams::port_forward(serving, &target, request).await,
        Route::NotServed => not_served(path),
        Route::Unknown => text(StatusCode::NOT_FOUND, "404 page not found"),
        Route::WrongMethod => text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
    }
}
