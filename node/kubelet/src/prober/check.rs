//! One probe: what is to be asked (pure), and the asking, through the doors.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use swiftlet_model::ids::ContainerId;
use swiftlet_model::probes::{HttpProbe, HttpScheme, ProbeAnswer};
use swiftlet_model::runtime::{ExecOutput, RuntimeError};

use crate::options::Doors;

/// Bytes of a command's output that are looked at (`maxReadLength` in `pkg/probe/exec`).
const OUTPUT_BYTES_MAX: usize = 10 << 10;
/// Bytes of an Event's message (`noteLengthLimit` in `pkg/apis/core/validation/events.go`).
pub(crate) const EVENT_BYTES_MAX: usize = 1024;
/// Times that a probe is tried which the node could not make (`maxProbeRetries` in
/// `pkg/kubelet/prober`).
const TRIES_MAX: usize = 3;

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// A command in the container.
    Exec(Vec<String>),
    /// A request by HTTP.
    Http(HttpProbe),
    /// A connection.
    Tcp(String, u16),
    /// The health protocol of gRPC, for a service.
    Grpc(String, u16, String),
}

/// Why a probe cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CheckError {
    /// A name that no port of the container has, or a number that no port can have.
    #[error("couldn't find port: {0}")]
    NoPort(String),
    /// It says nothing that can be asked.
    #[error("missing probe handler for {0}")]
    NoHandler(String),
}

impl Check {
    /// What `probe` asks of the container at `pod_ip`.
    pub(crate) fn of(
        probe: &Probe,
        container: &Container,
        pod_ip: &str,
    ) -> Result<Self, CheckError> {
        if let Some(exec) = &probe.exec {
            return Ok(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &probe.http_get {
            return Ok(Self::Http(http_probe(get, container, pod_ip)?));
        }
        if let Some(tcp) = &probe.tcp_socket {
            let host = tcp.host.as_deref().filter(|host| !host.is_empty());
            let port = port(&tcp.port, container)?;
            return Ok(Self::Tcp(host.unwrap_or(pod_ip).to_owned(), port));
        }
        if let Some(grpc) = &probe.grpc {
            let port = port(&IntOrString::Int(grpc.port), container)?;
            let service = grpc.service.clone().unwrap_or_default();
            return Ok(Self::Grpc(pod_ip.to_owned(), port, service));
        }
        Err(CheckError::NoHandler(container.name.clone()))
    }

    /// Asks. What the node could not ask is tried again at once; after that it says nothing.
    pub(crate) async fn ask(
        &self,
        doors: &Doors,
        id: &ContainerId,
        limit: Duration,
    ) -> ProbeAnswer {
        let mut answer = ProbeAnswer::Unknown(String::new());
        for _ in 0..TRIES_MAX {
            answer = self.ask_once(doors, id, limit).await;
            if !matches!(answer, ProbeAnswer::Unknown(_)) {
                break;
            }
        }
        answer
    }

    async fn ask_once(&self, doors: &Doors, id: &ContainerId, limit: Duration) -> ProbeAnswer {
        match self {
            Self::Exec(command) => {
                let result = doors.runtime.exec_sync(id, command, limit).await;
                exec_answer(command, result)
            }
            Self::Http(request) => doors.probes.http_get(request, limit).await,
            Self::Tcp(host, port) => doors.probes.tcp(host, *port, limit).await,
            Self::Grpc(host, port, service) => doors.probes.grpc(host, *port, service, limit).await,
        }
    }
}

/// The request of an `httpGet` of a probe or a lifecycle hook.
pub(crate) fn http_probe(
    get: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
) -> Result<HttpProbe, CheckError> {
    let https = |scheme: &str| scheme.eq_ignore_ascii_case("https");
    let scheme = if get.scheme.as_deref().is_some_and(https) {
        HttpScheme::Https
    } else {
        HttpScheme::Http
    };
    let host = get.host.as_deref().filter(|host| !host.is_empty());
    let headers = get.http_headers.iter().flatten();
    Ok(HttpProbe {
        scheme,
        host: host.unwrap_or(pod_ip).to_owned(),
        port: port(&get.port, container)?,
        path: get.path.clone().unwrap_or_default(),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    })
}

/// A port by number, or by its name in the container's `ports`.
pub(crate) fn port(wanted: &IntOrString, container: &Container) -> Result<u16, CheckError> {
    let number = match wanted {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            let number = named.map(|port| port.container_port);
            number.or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        CheckError::NoPort(match wanted {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(name) => name.clone(),
        })
    })
}

/// A command that ends badly or too late has failed; if the runtime could not run it, that says
/// nothing about the container (`pkg/probe/exec`).
fn exec_answer(command: &[String], result: Result<ExecOutput, RuntimeError>) -> ProbeAnswer {
    match result {
        Ok(output) => {
            let mut said = output.stdout;
            said.extend(output.stderr);
            said.truncate(OUTPUT_BYTES_MAX);
            let said = String::from_utf8_lossy(&said).into_owned();
            match output.exit_code {
                0 => ProbeAnswer::Success(said),
                _ => ProbeAnswer::Failure(said),
            }
        }
        Err(RuntimeError::Timeout { .. }) => {
            ProbeAnswer::Failure(format!("command \"{}\" timed out", command.join(" ")))
        }
        Err(error) => ProbeAnswer::Unknown(error.to_string()),
    }
}

/// A text of at most so many bytes.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}
