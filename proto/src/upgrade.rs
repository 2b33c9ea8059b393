//! A request that turns its connection into a stream (SPDY, WebSocket), passed on to the next
//! server: once both have agreed, the two connections are one, and nothing of it is looked at.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderValue,
    PROXY_AUTHORIZATION, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::relay::relay;

/// How long the next server may take to agree or refuse.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Why an upgrade could not be passed on.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The next server's connection broke.
    #[error("the connection to the next server broke")]
    Http(#[from] hyper::Error),
    /// The next server did not answer.
    #[error("no answer within {} s", ANSWER_LIMIT.as_secs())]
    Timeout,
}

/// Whether a request wants its connection to become something else.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let named = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        value
            .split(',')
            .any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
    };
    headers.contains_key(UPGRADE) && headers.get_all(CONNECTION).iter().any(named)
}

/// What a request asks its connection to become, in lower case.
pub fn wanted(headers: &HeaderMap) -> String {
    let value = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Sends the request on, over a connection of its own, under another path. An answer of 101 means
/// that the streams are joined as soon as the caller has sent it to the client; any other answer
/// is the next server's refusal. `held` is kept until the streams have ended, `shutdown` ends them.
pub async fn pass_on<S, H>(
    next: S,
    mut request: Request<Incoming>,
    uri: Uri,
    host: &str,
    held: H,
    shutdown: CancellationToken,
) -> Result<Response<Incoming>, UpgradeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Send + 'static,
{
    let client = hyper::upgrade::on(&mut request);
    let (mut response, server) = ask(next, &request, uri, host).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let next = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let _held = held;
            let joined = async {
                // Either side may be gone by now; nobody is left to be told.
                let (client, next) = tokio::try_join!(client, next).ok()?;
                Some(relay(io(client), io(next)).await)
            };
            shutdown.run_until_cancelled_owned(joined).await;
            drop(server);
        });
    }
    Ok(response)
}

/// A request over a connection of its own; the connection's sender must be kept while it is used.
async fn ask<S>(
    next: S,
    request: &Request<Incoming>,
    uri: Uri,
    host: &str,
) -> Result<(Response<Incoming>, http1::SendRequest<Empty<Bytes>>), UpgradeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut onward = Request::new(Empty::new());
    *onward.method_mut() = request.method().clone();
    *onward.uri_mut() = uri;
    *onward.headers_mut() = headers_of(request.headers(), host);
    let exchange = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(next)).await?;
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(onward).await?;
        Ok::<_, UpgradeError>((response, sender))
    };
    let exchange = tokio::time::timeout(ANSWER_LIMIT, exchange);
    exchange.await.map_err(|_| UpgradeError::Timeout)?
}

/// The client's headers, those of the upgrade among them; who the client is, is settled here.
fn headers_of(headers: &HeaderMap, host: &str) -> HeaderMap {
    let mut onward = headers.clone();
    // Nor is there a body that could be announced or waited for.
    for name in [
        AUTHORIZATION,
        PROXY_AUTHORIZATION,
        COOKIE,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        EXPECT,
    ] {
        onward.remove(name);
    }
    if let Ok(host) = HeaderValue::from_str(host) {
        onward.insert(HOST, host);
    }
    onward
}

fn io(upgraded: Upgraded) -> TokioIo<Upgraded> {
    TokioIo::new(upgraded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_asked_for_by_both_headers() {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        assert!(!is_upgrade(&headers));
        let connection = HeaderValue::from_static("keep-alive, Upgrade");
        headers.insert(CONNECTION, connection);
        assert!(is_upgrade(&headers));
        assert_eq!(wanted(&headers), "spdy/3.1");
    }

    #[test]
    fn who_the_client_is_goes_no_further() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        headers.insert(HOST, HeaderValue::from_static("api"));
        let onward = headers_of(&headers, "node:10250");
        assert!(!onward.contains_key(AUTHORIZATION));
        assert_eq!(onward[HOST], "node:10250");
    }
}
