//! The Probes door: HTTP, TCP and gRPC requests to what runs in pods.
//!
//! Each request has a connection of its own, which ends with it: a probe also tells whether the
//! container takes new connections. Dropping a request closes its socket. The rules are those of
//! `pkg/probe` of Kubernetes.
#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use swiftlet_model::probes::{HttpProbe, ProbeAnswer, Probes};
use tokio::net::TcpStream;

mod grpc;
mod http;
mod redirect;
mod tls;

use crate::http::HttpClient;

/// The Kubernetes version that user agents name.
pub(crate) const KUBERNETES_VERSION: &str = "1.34";

/// Speaks to pods over the node's network.
#[derive(Clone, Debug)]
pub struct NetworkProbes {
    http: HttpClient,
}

impl NetworkProbes {
    /// Connects to nothing yet.
    pub fn new() -> Self {
        Self {
            http: HttpClient::new(),
        }
    }
}

impl Default for NetworkProbes {
    fn default() -> Self {
        Self::new()
    }
}

impl Probes for NetworkProbes {
    fn http_get<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer> {
        self.http.probe(request, limit).boxed()
    }

    fn http_hook<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, Result<u16, String>> {
        self.http.hook(request, limit).boxed()
    }

    fn tcp<'a>(&'a self, host: &'a str, port: u16, limit: Duration) -> BoxFuture<'a, ProbeAnswer> {
        async move {
            match tokio::time::timeout(limit, connect(host, port)).await {
                Ok(Ok(_connection)) => ProbeAnswer::Success(String::new()),
                Ok(Err(said)) => ProbeAnswer::Failure(said),
                Err(_) => {
                    let address = address(host, port);
                    ProbeAnswer::Failure(format!("dial tcp {address}: i/o timeout"))
                }
            }
        }
        .boxed()
    }

    fn grpc<'a>(
        &'a self,
        host: &'a str,
        port: u16,
        service: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer> {
        grpc::check(address(host, port), service, limit).boxed()
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A connection, or words on why there is none.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let connected = TcpStream::connect((host, port)).await;
    connected.map_err(|error| {
        let words = network_words(&error);
        format!("dial tcp {}: connect: {words}", address(host, port))
    })
}

/// The words that people know from other tools; the kernel's if there are none.
pub(crate) fn network_words(error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::TimedOut => "connection timed out",
        _ => return error.to_string(),
    };
    known.to_owned()
}
