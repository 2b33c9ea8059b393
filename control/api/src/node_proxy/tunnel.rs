//! Port-forward of newer kubectls: SPDY inside of binary WebSocket messages (KEP-4006). The frames
//! are taken off here and put on again; the SPDY inside is the runtime's business.
//!
//! ```text
//! client ──WebSocket(SPDY)──▶ here ──SPDY──▶ node ──▶ runtime
//! ```

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use swiftlet_client::api::ApiError;
use swiftlet_proto::relay::LINGER;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::stream::refused;
use crate::error;
use crate::http_side::{BoxError, ResponseBody, full};

/// What the client offers (`WebsocketsSPDYTunnelingPortForwardV1` of
/// `k8s.io/apimachinery/pkg/util/portforward`).
pub(super) const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// What it means for the node.
const INNER_PROTOCOL: HeaderValue = HeaderValue::from_static("portforward.k8s.io");
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// What RFC 6455 has servers hash the client's key with.
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of one message, and of one read.
const BUFFER_BYTES: usize = 32 << 10;
/// Longest content of a control frame (RFC 6455, 5.5).
const CONTROL_BYTES_MAX: u64 = 125;
/// Answers to pings that wait to be sent; more are dropped.
const PONGS_MAX: usize = 4;
/// How long the node may take to agree.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Kinds of frames.
const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The whole frame is the message.
const FINAL: u8 = 0x80;
/// The content is masked, as that of all clients' frames.
const MASKED: u8 = 0x80;

/// Asks the node, agrees with the client, and begins to pass bytes.
pub(super) async fn answer(
    node: TlsStream<TcpStream>,
    mut request: Request<Incoming>,
    uri: Uri,
    host: &str,
    session: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) -> Result<Response<ResponseBody>, ApiError> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
    let version = request.headers().get(SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (key, version.map(HeaderValue::as_bytes)) else {
        return Err(error::bad_request("this is no handshake of RFC 6455"));
    };
    let asked = tokio::time::timeout(ANSWER_LIMIT, ask(node, uri, host)).await;
    let asked = asked.map_err(|_| error::internal("the node does not answer in time"))?;
    let (mut response, sender) = asked.map_err(error::internal)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(host, response).await;
    }
    let client = hyper::upgrade::on(&mut request);
    let node = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let joined = async {
            // Either side may be gone by now; nobody is left to be told.
            let (client, node) = tokio::try_join!(client, node).ok()?;
            tunnel(TokioIo::new(client), TokioIo::new(node)).await;
            Some(())
        };
        shutdown.run_until_cancelled_owned(joined).await;
        drop((sender, session));
    });
    agreed(&key)
}

type Asked = (Response<Incoming>, http1::SendRequest<Empty<Bytes>>);

async fn ask(node: TlsStream<TcpStream>, uri: Uri, host: &str) -> Result<Asked, BoxError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(node)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(http::header::HOST, HeaderValue::from_str(host)?);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(STREAM_PROTOCOL, INNER_PROTOCOL);
    let response = sender.send_request(request).await?;
    Ok((response, sender))
}

fn agreed(key: &HeaderValue) -> Result<Response<ResponseBody>, ApiError> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let accept = HeaderValue::from_str(&accept(key.as_bytes())).map_err(error::internal)?;
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

fn accept(key: &[u8]) -> String {
    let text = [key, ACCEPT_GUID.as_bytes()].concat();
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &text);
    BASE64.encode(digest)
}

/// Passes bytes until both sides have ended, or one has and the other lingers.
pub(super) async fn tunnel<C, N>(client: C, node: N)
where
    C: AsyncRead + AsyncWrite,
    N: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_node, to_node) = tokio::io::split(node);
    let (pongs, pong) = mpsc::channel(PONGS_MAX);
    let mut inward = std::pin::pin!(unwrap(from_client, to_node, pongs));
    let mut outward = std::pin::pin!(wrap(from_node, to_client, pong));
    // A client that has said that it ends gets what is on its way; one that breaks off is gone. An
    // error is nothing that anybody could mend.
    tokio::select! {
        ended = inward.as_mut() => {
            if ended.is_ok() {
                drop(tokio::time::timeout(LINGER, outward).await);
            }
        }
        _ = outward.as_mut() => {}
    }
}

/// Takes the content of messages out of their frames.
async fn unwrap<R, W>(mut from: R, mut to: W, pongs: mpsc::Sender<Vec<u8>>) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let Some(frame) = Frame::read(&mut from).await? else {
            return to.shutdown().await;
        };
        match frame.kind {
            BINARY | CONTINUATION => {
                let (mut left, mut at) = (frame.length, 0usize);
                while left > 0 {
                    let most = usize::try_from(left)
                        .unwrap_or(usize::MAX)
                        .min(BUFFER_BYTES);
                    let read = from.read(&mut buffer[..most]).await?;
                    if read == 0 {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    frame.unmask(&mut buffer[..read], at);
                    to.write_all(&buffer[..read]).await?;
                    at += read;
                    left -= read as u64;
                }
                to.flush().await?;
            }
            PING | PONG | CLOSE if frame.length <= CONTROL_BYTES_MAX => {
                let length = usize::try_from(frame.length).unwrap_or_default();
                let content = &mut buffer[..length];
                from.read_exact(content).await?;
                frame.unmask(content, 0);
                match frame.kind {
                    // A client that pings faster than it reads misses some.
                    PING => drop(pongs.try_send(content.to_vec())),
                    CLOSE => return to.shutdown().await,
                    _ => {}
                }
            }
            _ => return Err(std::io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Puts bytes into frames.
async fn wrap<R, W>(
    mut from: R,
    mut to: W,
    mut pongs: mpsc::Receiver<Vec<u8>>,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let (kind, content) = tokio::select! {
            Some(content) = pongs.recv() => (PONG, content),
            read = from.read(&mut buffer) => match read? {
                0 => break,
                read => (BINARY, buffer[..read].to_vec()),
            },
        };
        to.write_all(&head(kind, content.len())).await?;
        to.write_all(&content).await?;
        to.flush().await?;
    }
    // 1000: a normal end (RFC 6455, 7.4.1).
    let end = 1000u16.to_be_bytes();
    to.write_all(&head(CLOSE, end.len())).await?;
    to.write_all(&end).await?;
    to.shutdown().await
}

/// The head of a frame that is a whole message.
fn head(kind: u8, length: usize) -> Vec<u8> {
    let mut head = vec![FINAL | kind];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => head.push(short),
        (_, Ok(middle)) => {
            head.push(126);
            head.extend(middle.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head
}

/// The head of a client's frame.
struct Frame {
    kind: u8,
    length: u64,
    mask: [u8; 4],
}

impl Frame {
    /// Reads it; `None` at the end.
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Self>> {
        let mut first = [0];
        if from.read(&mut first).await? == 0 {
            return Ok(None);
        }
        let second = from.read_u8().await?;
        if second & MASKED == 0 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let length = match second & !MASKED {
            126 => u64::from(from.read_u16().await?),
            127 => from.read_u64().await?,
            short => u64::from(short),
        };
        let mut mask = [0; 4];
        from.read_exact(&mut mask).await?;
        Ok(Some(Self {
            kind: first[0] & 0x0f,
            length,
            mask,
        }))
    }

    /// Takes the mask off a part of the content that begins at `at`.
    fn unmask(&self, part: &mut [u8], at: usize) {
        for (place, byte) in part.iter_mut().enumerate() {
            *byte ^= self.mask[(at + place) % self.mask.len()];
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn masked(kind: u8, content: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = head(kind, content.len());
        frame[1] |= MASKED;
        frame.extend(mask);
        let masked = content.iter().zip(mask.iter().cycle());
        frame.extend(masked.map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn the_key_is_answered_as_rfc_6455_has_it() {
        let accept = accept(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn frames_are_taken_off_and_put_on_whatever_their_length() {
        let ((mut here, near), (far, mut there)) = (duplex(1000), duplex(77));
        let tunnelled = tokio::spawn(tunnel(near, far));
        for length in [0, 1, 125, 126, 70_000] {
            let content: Vec<u8> = (0..=255).cycle().take(length).collect();
            let echo = async {
                let mut got = vec![0; length];
                there.read_exact(&mut got).await.unwrap();
                there.write_all(&got).await.unwrap();
                got
            };
            let ask = async {
                here.write_all(&masked(PING, b"x")).await.unwrap();
                here.write_all(&masked(BINARY, &content)).await.unwrap();
                let mut got = Vec::new();
                let mut is_answered = false;
                while got.len() < length || !is_answered {
                    let kind = here.read_u8().await.unwrap() & 0x0f;
                    let length = match here.read_u8().await.unwrap() {
                        126 => usize::from(here.read_u16().await.unwrap()),
                        short => usize::from(short),
                    };
                    let mut part = vec![0; length];
                    here.read_exact(&mut part).await.unwrap();
                    match kind {
                        PONG => is_answered = part == b"x",
                        _ => got.extend(part),
                    }
                }
                got
            };
            let (passed, back) = tokio::join!(echo, ask);
            assert!(passed == content && back == content, "{length}");
        }
        here.write_all(&masked(CLOSE, &[])).await.unwrap();
        let mut rest = Vec::new();
        there.read_to_end(&mut rest).await.unwrap();
        drop(there);
        tunnelled.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_frame_ends_the_tunnel() {
        for bad in [&[0x82, 0x01, b'x'][..], &[0x89, 0xfe, 1, 0, 1, 2, 3, 4]] {
            let ((mut here, near), (far, mut there)) = (duplex(100), duplex(100));
            let tunnelled = tokio::spawn(tunnel(near, far));
            here.write_all(bad).await.unwrap();
            drop(here);
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(LINGER, there.read_to_end(&mut rest)).await;
            assert!(rest.is_empty());
            drop(there);
            tunnelled.await.unwrap();
        }
    }
}
