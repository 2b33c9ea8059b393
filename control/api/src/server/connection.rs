//! One connection: handshake, identity, requests.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use swiftlet_client::api::UserInfo;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Mount;
use crate::authn;
use crate::authz;
use crate::error;
use crate::http_side::{self, HttpSide, ResponseBody};

/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the head of an HTTP/1.1 request (Kubernetes: 32 s).
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// Header fields of a request.
const HEADERS_MAX: usize = 128;
/// Bytes of a request's head (Go's limit).
const HEADER_BYTES_MAX: usize = 1024 * 1024;
/// Requests at one time in one HTTP/2 connection (Kubernetes: 100; a node has more watches).
const STREAMS_MAX: u32 = 1000;
/// Quiet time after which an HTTP/2 client is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for its answer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// What all connections share.
pub(super) struct Shared {
    pub(super) http: HttpSide,
    pub(super) mounts: Vec<Mount>,
    pub(super) shutdown: CancellationToken,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
    let tls = tokio::select! {
        biased;
        () = shared.shutdown.cancelled() => return,
        handshake = handshake => match handshake {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake timed out"),
        },
    };
    let certificates = tls.get_ref().1.peer_certificates();
    let user = certificates
        .and_then(|list| list.first())
        .and_then(authn::user_of_certificate);
    let service = service_fn(|request| {
        let (shared, user) = (Arc::clone(&shared), user.clone());
        async move { Ok::<_, Infallible>(respond(&shared, user, request).await) }
    });
    let builder = builder();
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(tls), service));
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shared.shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(error, "connection failed");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

async fn respond(
    shared: &Shared,
    user: Option<UserInfo>,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let user = user.or_else(|| shared.http.user_of_token(request.headers()));
    let Some(mount) = shared
        .mounts
        .iter()
        .find(|mount| mount.takes(request.uri().path()))
    else {
        return shared.http.answer(user, request).await;
    };
    let Some(user) = user else {
        return http_side::status(&error::unauthorized());
    };
    if let Err(error) = authz::authorize_mount(&user, request.uri().path()) {
        return http_side::status(&error);
    }
    request.extensions_mut().insert(user);
    match mount.call(request).await {
        Ok(response) => response,
        Err(why) => http_side::status(&error::internal(why)),
    }
}
