//! pods/exec, pods/attach and pods/portforward: once node and client have both agreed to leave
//! HTTP, bytes pass between them and nobody here looks at them.

use http::header::{HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use swiftlet_client::api::ApiError;
use swiftlet_proto::upgrade::{is_upgrade, pass_on, wanted};

use super::client::NodeClient;
use super::log;
use super::target::{self, Pod};
use super::tunnel;
use crate::api::ApiServer;
use crate::error;
use crate::http_side::{ResponseBody, full, with_type};
use crate::route::Target;

/// What a query says of a stream: `PodExecOptions`, `PodAttachOptions`, `PodPortForwardOptions`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    container: String,
    command: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
    ports: Vec<String>,
}

impl Wanted {
    pub(super) fn parse(query: &str) -> Self {
        let mut wanted = Self::default();
        // As Kubernetes reads a bool: all but these is true.
        let is_on = |value: &str| !(value.eq_ignore_ascii_case("false") || value == "0");
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "container" => wanted.container = value.into_owned(),
                "command" => wanted.command.push(value.into_owned()),
                "stdin" => wanted.stdin = is_on(&value),
                "stdout" => wanted.stdout = is_on(&value),
                "stderr" => wanted.stderr = is_on(&value),
                "tty" => wanted.tty = is_on(&value),
                "ports" => wanted.ports.push(value.into_owned()),
                _ => {}
            }
        }
        wanted
    }

    /// The node's path for it (`streamParams` in `pkg/registry/core/pod/strategy.go`).
    pub(super) fn path(&self, target: &Target, pod: &Pod) -> Result<String, ApiError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let Target {
            namespace,
            name,
            subresource,
            ..
        } = target;
        if *subresource == "portforward" {
            for port in &self.ports {
                query.append_pair("port", port);
            }
            return Ok(format!(
                "/portForward/{namespace}/{name}?{}",
                query.finish()
            ));
        }
        let container = pod.container(&self.container)?;
        for (is_on, stream) in [
            (self.stdin, "input"),
            (self.stdout, "output"),
            (self.stderr, "error"),
            (self.tty, "tty"),
        ] {
            if is_on {
                query.append_pair(stream, "1");
            }
        }
        if *subresource == "exec" {
            for word in &self.command {
                query.append_pair("command", word);
            }
        }
        let query = query.finish();
        Ok(format!(
            "/{subresource}/{namespace}/{name}/{container}?{query}"
        ))
    }
}

/// How a client wants to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// In a way that the node speaks.
    Node,
    /// SPDY inside of WebSocket.
    Tunnel,
    /// In a way that nobody here speaks. kubectl takes a refusal for a hint to use SPDY.
    Unknown,
}

/// WebSocket protocols that the runtime's server speaks
/// (`k8s.io/kubelet/pkg/cri/streaming/{remotecommand,portforward}/websocket.go`).
const SPOKEN: [&str; 6] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "portforward.k8s.io",
];

/// How a client wants to speak.
pub(super) fn speech(subresource: &str, headers: &HeaderMap) -> Speech {
    if wanted(headers) != "websocket" {
        return Speech::Node;
    }
    let offers: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    if subresource == "portforward" && offers.contains(&tunnel::PROTOCOL) {
        return Speech::Tunnel;
    }
    if offers.is_empty() || offers.iter().any(|offer| SPOKEN.contains(offer)) {
        return Speech::Node;
    }
    Speech::Unknown
}

/// Answers a request for a stream.
pub(super) async fn answer(
    api: &ApiServer,
    client: &NodeClient,
    target: &Target,
    pod: &Pod,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    let query = Wanted::parse(request.uri().query().unwrap_or_default());
    let path = query.path(target, pod)?;
    let node = pod.node().ok_or_else(|| {
        let name = &target.name;
        error::bad_request(format!("pod {name} does not have a host assigned"))
    })?;
    if !is_upgrade(request.headers()) {
        return Err(error::bad_request("Upgrade request required"));
    }
    let speech = speech(target.subresource, request.headers());
    if speech == Speech::Unknown {
        return Err(error::bad_request(
            "none of the WebSocket protocols is served here: use v4.channel.k8s.io, or SPDY/3.1",
        ));
    }
    let place = target::place(api, node)?;
    let session = client.session()?;
    let stream = client.connect(&place, false).await?;
    let uri: Uri = path.parse().map_err(error::internal)?;
    let host = std::net::SocketAddr::new(place.address, place.port).to_string();
    let shutdown = api.shutdown_token();
    if speech == Speech::Tunnel {
        return tunnel::answer(stream, request, uri, &host, session, shutdown).await;
    }
    let response = pass_on(stream, request, uri, &host, session, shutdown).await;
    let response =
        response.map_err(|why| error::internal(format_args!("node {}: {why}", place.node)))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(&place.node, response).await;
    }
    // What follows is no body.
    Ok(response.map(|_| full(bytes::Bytes::new())))
}

/// A node's refusal as the client sees it: its code and its words, which kubectl shows. Nothing
/// else of it is passed on; where to go instead is not a node's to say.
pub(super) async fn refused(
    node: &str,
    response: Response<Incoming>,
) -> Result<Response<ResponseBody>, ApiError> {
    let code = response.status();
    let words = log::words_of(response).await;
    match code {
        // That the node refuses this server is nothing that the client could mend.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(error::internal(words)),
        code if code.is_client_error() || code.is_server_error() => {
            let text = "text/plain; charset=utf-8";
            Ok(with_type(code, text, words.into()))
        }
        code => Err(error::internal(format_args!(
            "node {node} answered {code} where it was to agree or to refuse"
        ))),
    }
}
