//! Requests to what runs in a pod: probes and lifecycle hooks over the network.

use std::time::Duration;

use futures::future::BoxFuture;

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// It is as it should be; what was said.
    Success(String),
    /// It counts as success, but someone should look.
    Warning(String),
    /// It is not as it should be.
    Failure(String),
    /// The node could not ask: this says nothing about the container.
    Unknown(String),
}

/// How HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpScheme {
    /// In the clear.
    #[default]
    Http,
    /// Over TLS; the certificate is not checked.
    Https,
}

/// A GET request of a probe or hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpProbe {
    /// `HTTP` or `HTTPS`.
    pub scheme: HttpScheme,
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path with query, as the pod's spec says it.
    pub path: String,
    /// Headers of the spec, in order. Those that are missing get their defaults.
    pub headers: Vec<(String, String)>,
}

/// Asks what runs in a pod. An answer that does not come within `limit` is a failure.
pub trait Probes: Send + Sync {
    /// Asks by HTTP: 200 to 399 is success.
    fn http_get<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer>;

    /// Sends a request as a lifecycle hook does: answers whatever status there is.
    fn http_hook<'a>(
        &'a self,
        request: &'a HttpProbe,
        limit: Duration,
    ) -> BoxFuture<'a, Result<u16, String>>;

    /// Opens a connection.
    fn tcp<'a>(&'a self, host: &'a str, port: u16, limit: Duration) -> BoxFuture<'a, ProbeAnswer>;

    /// Asks a service of `grpc.health.v1`; the empty name is the whole server.
    fn grpc<'a>(
        &'a self,
        host: &'a str,
        port: u16,
        service: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, ProbeAnswer>;
}
