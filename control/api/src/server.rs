//! The listener: TLS, HTTP/1.1 and 2 on one port, limits, and services mounted beside the API.

mod connection;
mod mount;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swiftlet_proto::accept::accept;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api::ApiServer;
use crate::http_side::HttpSide;
use crate::pki::Identity;

pub use mount::Mount;

/// Connections at one time.
const CONNECTIONS_MAX: usize = 8192;
/// Time that open connections get to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What can go wrong before the server serves.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("cannot use the TLS files")]
    Tls(#[source] rustls::Error),
    /// The CA cannot verify clients.
    #[error("cannot use the CA certificate")]
    Ca(#[source] rustls::server::VerifierBuilderError),
    /// A file is not PEM, or lacks what it should hold.
    #[error("{0} holds no usable PEM")]
    Pem(PathBuf),
}

/// Where and as whom to serve.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address to listen on; port 0 for any.
    pub address: SocketAddr,
    /// The serving certificate and its key.
    pub identity: Identity,
    /// PEM of the CA that clients' certificates are verified against.
    pub client_ca_pem: String,
}

/// The server, listening.
pub struct Server {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    api: ApiServer,
    mounts: Vec<Mount>,
}

impl Server {
    /// Begins to listen. Nothing is accepted before [`Server::run`].
    pub async fn bind(api: ApiServer, options: ServerOptions) -> Result<Self, ServerError> {
        let tls = tls::config(&options)?;
        let listen = |source| ServerError::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Ok(Self {
            listener,
            acceptor,
            address,
            api,
            mounts: Vec::new(),
        })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a service for a part of the paths. Users find their `UserInfo` in the request's
    /// extensions; who is unknown or not allowed does not reach the service.
    #[must_use]
    pub fn mount(mut self, mount: Mount) -> Self {
        self.mounts.push(mount);
        self
    }

    /// Serves until `shutdown`, then lets open connections finish.
    pub async fn run(self, shutdown: CancellationToken) {
        let shared = Arc::new(connection::Shared {
            http: HttpSide::new(self.api.clone()),
            mounts: self.mounts,
            shutdown: shutdown.clone(),
        });
        let acceptor = self.acceptor;
        let serve = |stream: TcpStream| {
            // Watch events are small and must not wait for an acknowledgement.
            let _ = stream.set_nodelay(true);
            connection::serve(stream, acceptor.clone(), Arc::clone(&shared))
        };
        let open = accept(self.listener, CONNECTIONS_MAX, &shutdown, serve).await;
        self.api.stop_watches();
        open.drain(DRAIN_TIMEOUT).await;
    }
}
