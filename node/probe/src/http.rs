//! HTTP probes and hooks. Rules: `pkg/probe/http` of Kubernetes.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use swiftlet_model::probes::{HttpProbe, HttpScheme, ProbeAnswer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::redirect::Target;
use crate::{KUBERNETES_VERSION, address, connect};

/// Bytes of an answer's body that are read (`maxRespBodyLength` in `pkg/probe/http`).
const BODY_BYTES_MAX: usize = 10 << 10;
/// Requests of one probe, redirects included (`RedirectChecker` in `pkg/probe/http`).
const REQUESTS_MAX: usize = 10;

/// Sends HTTP requests, one connection each.
#[derive(Clone)]
pub(crate) struct HttpClient {
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// What came back.
struct Reply {
    status: StatusCode,
    location: Option<String>,
    body: String,
}

/// Why nothing came back.
enum Trouble {
    /// The server does not speak TLS.
    InTheClear,
    /// Other words.
    Words(String),
}

impl From<String> for Trouble {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl Trouble {
    fn words(self) -> String {
        match self {
            Self::InTheClear => "http: server gave HTTP response to HTTPS client".to_owned(),
            Self::Words(words) => words,
        }
    }
}

impl HttpClient {
    pub(crate) fn new() -> Self {
        let tls = crate::tls::connector();
        Self { tls }
    }

    /// 200 to 299 is success; a redirect that is not followed is success with a warning.
    pub(crate) async fn probe(&self, request: &HttpProbe, limit: Duration) -> ProbeAnswer {
        let agent = format!("kube-probe/{KUBERNETES_VERSION}");
        let reply = match self.within(request, &agent, limit).await {
            Ok(reply) => reply,
            Err(trouble) => return ProbeAnswer::Failure(trouble.words()),
        };
        let Reply { status, body, .. } = reply;
        if status.is_success() {
            ProbeAnswer::Success(body)
        } else if status.is_redirection() {
            let text = format!("Probe terminated redirects, Response body: {body}");
            ProbeAnswer::Warning(text)
        } else {
            let code = status.as_u16();
            ProbeAnswer::Failure(format!("HTTP probe failed with statuscode: {code}"))
        }
    }

    /// A hook of HTTPS goes to a server in the clear as well, since hooks did not speak TLS in the
    /// beginning (`pkg/kubelet/lifecycle/handlers.go`).
    pub(crate) async fn hook(&self, request: &HttpProbe, limit: Duration) -> Result<u16, String> {
        let agent = format!("kube-lifecycle/{KUBERNETES_VERSION}");
        let mut result = self.within(request, &agent, limit).await;
        if matches!(result, Err(Trouble::InTheClear)) {
            let secret = |name: &str| name.eq_ignore_ascii_case("authorization");
            let mut plain = request.clone();
            plain.scheme = HttpScheme::Http;
            plain.headers.retain(|(name, _)| !secret(name));
            result = self.within(&plain, &agent, limit).await;
        }
        let reply = result.map_err(Trouble::words)?;
        Ok(reply.status.as_u16())
    }

    async fn within(
        &self,
        request: &HttpProbe,
        agent: &str,
        limit: Duration,
    ) -> Result<Reply, Trouble> {
        let HttpProbe {
            scheme, host, port, ..
        } = request;
        let first = Target::new(*scheme, host, *port, &request.path);
        let url = first.url();
        let headers = headers(&request.headers, agent)?;
        let reply = tokio::time::timeout(limit, self.follow(first, headers)).await;
        let named = |words: String| Trouble::Words(format!("Get \"{url}\": {words}"));
        match reply {
            Ok(Err(Trouble::Words(words))) => Err(named(words)),
            Ok(result) => result,
            Err(_) => Err(named("context deadline exceeded".to_owned())),
        }
    }

    /// Redirects are followed on the same host.
    async fn follow(&self, first: Target, headers: HeaderMap) -> Result<Reply, Trouble> {
        let mut target = first;
        for _ in 0..REQUESTS_MAX {
            let reply = self.once(&target, &headers).await?;
            let next = reply.location.as_deref();
            let next = next.filter(|_| is_followed(reply.status));
            let Some(location) = next else {
                return Ok(reply);
            };
            let Some(next) = target.follow(location) else {
                let words = format!("failed to parse Location header \"{location}\"");
                return Err(Trouble::Words(words));
            };
            if !next.host.eq_ignore_ascii_case(&target.host) {
                return Ok(reply);
            }
            target = next;
        }
        let words = format!("stopped after {REQUESTS_MAX} redirects");
        Err(Trouble::Words(words))
    }

    async fn once(&self, target: &Target, headers: &HeaderMap) -> Result<Reply, Trouble> {
        let stream = connect(&target.host, target.port).await?;
        match (target.scheme, &self.tls) {
            (HttpScheme::Http, _) => exchange(stream, target, headers).await,
            (HttpScheme::Https, None) => Err(Trouble::Words("no TLS in this build".to_owned())),
            (HttpScheme::Https, Some(tls)) => {
                let name = ServerName::try_from(target.host.clone());
                let name = name.map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await.map_err(tls_trouble)?;
                exchange(stream, target, headers).await
            }
        }
    }
}

fn tls_trouble(error: std::io::Error) -> Trouble {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => Trouble::InTheClear,
        Some(other) => Trouble::Words(format!("tls: {other}")),
        None => Trouble::Words(crate::network_words(&error)),
    }
}

fn is_followed(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The spec's headers with the defaults of those that are missing. An empty one takes the default
/// away.
fn headers(wanted: &[(String, String)], agent: &str) -> Result<HeaderMap, String> {
    let mut all = HeaderMap::new();
    for (name, value) in wanted {
        let wrong = || format!("invalid header \"{name}\"");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        all.append(key, value);
    }
    let agent = HeaderValue::from_str(agent).map_err(|error| error.to_string())?;
    for (name, default) in [
        (USER_AGENT, agent),
        (ACCEPT, HeaderValue::from_static("*/*")),
    ] {
        let given = all.get(&name);
        match given.map(HeaderValue::is_empty) {
            None => _ = all.insert(name, default),
            Some(true) => _ = all.remove(name),
            Some(false) => {}
        }
    }
    all.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(all)
}

/// One request over one connection.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Reply, Trouble> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::GET;
    let path = target.path.parse();
    *request.uri_mut() = path.map_err(|error: http::uri::InvalidUri| error.to_string())?;
    *request.headers_mut() = headers.clone();
    if headers.get(HOST).is_none_or(HeaderValue::is_empty) {
        let host = HeaderValue::from_str(&address(&target.host, target.port));
        let host = host.map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
    }
    let mut builder = http1::Builder::new();
    let builder = builder.title_case_headers(true);
    let (mut sender, connection) = builder
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(|error| words(&error))?;
    let mut connection = pin!(connection);
    let mut work = pin!(async {
        let answer = sender.send_request(request).await;
        let (parts, body) = answer.map_err(|error| words(&error))?.into_parts();
        let location = parts.headers.get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        Ok(Reply {
            status: parts.status,
            location: location.map(str::to_owned),
            body: read(body).await.map_err(|error| words(&error))?,
        })
    });
    tokio::select! {
        biased;
        reply = &mut work => reply,
        // The connection ends by itself only when all that it had to say is there.
        _ = &mut connection => work.await,
    }
}

/// The beginning of a body.
async fn read(mut body: Incoming) -> Result<String, hyper::Error> {
    let mut bytes = Vec::new();
    while bytes.len() < BODY_BYTES_MAX {
        let Some(frame) = body.frame().await else {
            break;
        };
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    bytes.truncate(BODY_BYTES_MAX);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An error with its causes, the last of which tells most.
fn words(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let cause = std::error::Error::source(error);
    match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(cause) => crate::network_words(cause),
        None => error.to_string(),
    }
}
