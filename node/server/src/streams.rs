//! Commands in containers, their terminals, and ports of pods.
//!
//! The runtime has a server for these, on loopback: it is asked for a place to connect to, and the
//! client's connection is joined with it. SPDY and WebSocket are the client's and the runtime's
//! business; the node sees bytes.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use swiftlet_model::pod_board::Posted;
use swiftlet_model::runtime::{RuntimeError, SandboxState};
use swiftlet_model::streaming::Streams;
use swiftlet_proto::relay::for_long_streams;
use swiftlet_proto::upgrade::{is_upgrade, pass_on};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{Answer, BodyError, text};
use crate::container;
use crate::route::Target;
use crate::server::Serving;

/// How long the runtime's server may take to accept a connection; it is on this machine.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

type Refusal = (StatusCode, String);

/// What a query says of a stream (`pkg/kubelet/server/server.go`: `input`, `output`, `error`,
/// `tty`, `command`; `port` of a port-forward).
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    streams: Streams,
    command: Vec<String>,
    ports: Vec<u16>,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let mut wanted = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_on = matches!(&*value, "1" | "true");
            match &*name {
                "input" | "stdin" => wanted.streams.stdin |= is_on,
                "output" | "stdout" => wanted.streams.stdout |= is_on,
                "error" | "stderr" => wanted.streams.stderr |= is_on,
                "tty" => wanted.streams.tty |= is_on,
                "command" => wanted.command.push(value.into_owned()),
                "port" => {
                    for port in value.split(',') {
                        let port = port.parse().ok().filter(|port| *port > 0);
                        let words = || format!("{value:?} is no port");
                        let port = port.ok_or_else(|| (StatusCode::BAD_REQUEST, words()))?;
                        wanted.ports.push(port);
                    }
                }
                _ => {}
            }
        }
        // A terminal has one output.
        wanted.streams.stderr &= !wanted.streams.tty;
        Ok(wanted)
    }

    fn has_streams(&self) -> Result<(), Refusal> {
        let Streams {
            stdin,
            stdout,
            stderr,
            ..
        } = self.streams;
        if stdin || stdout || stderr {
            return Ok(());
        }
        let words = "you must specify at least 1 of stdin, stdout, stderr".to_owned();
        Err((StatusCode::BAD_REQUEST, words))
    }
}

/// Runs a command in a container.
pub(crate) async fn exec(serving: &Serving, target: &Target, request: Request<Incoming>) -> Answer {
    let url = async {
        let wanted = wanted(&request)?;
        wanted.has_streams()?;
        if wanted.command.is_empty() {
            return Err((StatusCode::BAD_REQUEST, "no command is given".to_owned()));
        }
        let posted = pod(serving, target)?;
        let container = running(&posted, target)?;
        let place = free_place(serving)?;
        let url = serving
            .streaming
            .exec(&container, &wanted.command, wanted.streams);
        Ok((url.await.map_err(of_runtime)?, place))
    };
    let url = url.await;
    joined(serving, url, request).await
}

/// Joins the first process of a container.
pub(crate) async fn attach(
    serving: &Serving,
    target: &Target,
    request: Request<Incoming>,
) -> Answer {
    let url = async {
        let wanted = wanted(&request)?;
        wanted.has_streams()?;
        let posted = pod(serving, target)?;
        let container = running(&posted, target)?;
        let place = free_place(serving)?;
        let url = serving.streaming.attach(&container, wanted.streams);
        Ok((url.await.map_err(of_runtime)?, place))
    };
    let url = url.await;
    joined(serving, url, request).await
}

/// Reaches ports of a pod.
pub(crate) async fn port_forward(
    serving: &Serving,
    target: &Target,
    request: Request<Incoming>,
) -> Answer {
    let url = async {
        let wanted = wanted(&request)?;
        let posted = pod(serving, target)?;
        let place = free_place(serving)?;
        let runtime = serving.runtime.pod(&posted.key.uid);
        let runtime = runtime.await.map_err(of_runtime)?;
        let mut sandboxes = runtime.sandboxes.iter();
        let ready = sandboxes.find(|one| one.state == SandboxState::Ready);
        let ready = ready.ok_or_else(|| {
            let words = format!("pod {:?} is not running", target.pod);
            (StatusCode::INTERNAL_SERVER_ERROR, words)
        })?;
        let url = serving.streaming.port_forward(&ready.id, &wanted.ports);
        Ok((url.await.map_err(of_runtime)?, place))
    };
    let url = url.await;
    joined(serving, url, request).await
}

fn wanted(request: &Request<Incoming>) -> Result<Wanted, Refusal> {
    if !is_upgrade(request.headers()) {
        let words = "Upgrade request required".to_owned();
        return Err((StatusCode::BAD_REQUEST, words));
    }
    Wanted::parse(request.uri().query().unwrap_or_default())
}

fn pod(serving: &Serving, target: &Target) -> Result<Posted, Refusal> {
    let posted = serving.board.find(&target.namespace, &target.pod);
    let is_meant = |posted: &Posted| {
        let uid = target.uid.as_deref();
        uid.is_none_or(|uid| posted.key.uid.as_str() == uid)
    };
    let words = || (StatusCode::NOT_FOUND, "pod does not exist".to_owned());
    posted.filter(is_meant).ok_or_else(words)
}

fn running(posted: &Posted, target: &Target) -> Result<swiftlet_model::ids::ContainerId, Refusal> {
    let id = container::running(&posted.status, &target.container);
    let words = || format!("container not found ({:?})", target.container);
    id.ok_or_else(|| (StatusCode::INTERNAL_SERVER_ERROR, words()))
}

fn of_runtime(error: RuntimeError) -> Refusal {
    let code = if error.is_not_found() {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    (code, error.to_string())
}

/// Before the runtime is asked: it keeps a limited number of streams ready for those who come.
fn free_place(serving: &Serving) -> Result<OwnedSemaphorePermit, Refusal> {
    let place = Arc::clone(&serving.streams).try_acquire_owned();
    place.map_err(|_| {
        let words = "too many streams into pods are open at this moment";
        (StatusCode::TOO_MANY_REQUESTS, words.to_owned())
    })
}

/// Joins the client with the place that the runtime has prepared.
async fn joined(
    serving: &Serving,
    prepared: Result<(String, OwnedSemaphorePermit), Refusal>,
    request: Request<Incoming>,
) -> Answer {
    let joined = async {
        let (url, place) = prepared?;
        join(serving, &url, request, place).await
    };
    match joined.await {
        Ok(answer) => answer,
        Err((code, words)) => text(code, words),
    }
}

async fn join(
    serving: &Serving,
    url: &str,
    request: Request<Incoming>,
    place: OwnedSemaphorePermit,
) -> Result<Answer, Refusal> {
    let broken = |why: &dyn std::fmt::Display| {
        let words = format!("the runtime's streaming server: {why}");
        (StatusCode::BAD_GATEWAY, words)
    };
    let (authority, path) = place_of(url).ok_or_else(|| broken(&"an address that is none"))?;
    let connect = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&authority));
    let stream = connect.await.map_err(|_| broken(&"no answer"))?;
    let stream = stream.map_err(|error| broken(&error))?;
    for_long_streams(&stream);
    let shutdown = serving.shutdown.clone();
    let response = pass_on(stream, request, path, &authority, place, shutdown).await;
    let response = response.map_err(|error| broken(&error))?;
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    Ok(response.map(|body| {
        if switches {
            // What follows is no body.
            let nothing = http_body_util::Empty::new().map_err(|never| match never {});
            nothing.boxed_unsync()
        } else {
            body.map_err(BodyError::from).boxed_unsync()
        }
    }))
}

/// Address and path of a URL of the runtime.
fn place_of(url: &str) -> Option<(String, Uri)> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?;
    let authority = format!("{host}:{}", url.port_u16().unwrap_or(80));
    let path = url
        .path_and_query()
        .map_or("/", PathAndQuery::as_str)
        .parse()
        .ok()?;
    (url.scheme_str() == Some("http")).then_some((authority, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_which_streams_are_wanted() {
        let query = "command=sh&command=-c&command=a%20b&input=1&output=1&error=1&tty=1";
        let wanted = Wanted::parse(query).unwrap();
        assert_eq!(wanted.command, ["sh", "-c", "a b"]);
        let Streams {
            stdin,
            stdout,
            stderr,
            tty,
        } = wanted.streams;
        assert!(
            stdin && stdout && tty && !stderr,
            "a terminal has one output"
        );
        assert!(wanted.has_streams().is_ok());
        assert!(Wanted::parse("input=0").unwrap().has_streams().is_err());
        assert_eq!(
            Wanted::parse("port=80,81&port=82").unwrap().ports,
            [80, 81, 82]
        );
        assert!(Wanted::parse("port=0").is_err());
    }

    #[test]
    fn only_plain_addresses_of_this_machine_are_places() {
        let (authority, path) = place_of("http://127.0.0.1:3041/exec/x?y=1").unwrap();
        assert_eq!(
            (authority.as_str(), path.to_string().as_str()),
            ("127.0.0.1:3041", "/exec/x?y=1")
        );
        assert!(place_of("https://127.0.0.1:1/x").is_none());
        assert!(place_of("nonsense").is_none());
    }
}
