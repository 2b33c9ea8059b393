//! The listener: TLS, one task a connection, limits.

mod connection;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use swiftlet_model::pod_board::PodBoard;
use swiftlet_model::runtime::Runtime;
use swiftlet_model::streaming::Streaming;
use swiftlet_proto::accept::accept;
use swiftlet_proto::relay::for_long_streams;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::access::reviews::Reviews;
use crate::identity::{Identity, certificates};

/// Connections at one time: every log that is followed and every stream has one of its own.
const CONNECTIONS_MAX: usize = 2048;
/// Logs that are read at one time. Each one that is followed takes an inotify instance, of which
/// the kernel gives a user 128 unless `fs.inotify.max_user_instances` says otherwise.
const LOGS_MAX: usize = 512;
/// Streams into pods at one time.
const STREAMS_MAX: usize = 512;
/// Time that open connections get to finish at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

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
    /// The certificate or the key cannot be used.
    #[error("cannot use the serving certificate")]
    Tls(#[from] rustls::Error),
    /// The authority cannot verify clients.
    #[error("cannot use the authority for clients")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// The authority is no PEM.
    #[error("the authority for clients is not valid PEM")]
    Pem,
}

/// Where and as whom to serve.
#[derive(Debug)]
pub struct ServerOptions {
    /// The address to listen on; port 0 for any.
    pub address: SocketAddr,
    /// The serving certificate.
    pub identity: Identity,
    /// PEM of the authority that clients' certificates are verified against.
    pub client_ca_pem: Vec<u8>,
    /// The node's name in the API.
    pub node_name: String,
    /// Folder of the pods' logs.
    pub log_root: PathBuf,
}

/// What the server asks.
pub struct ServerDoors {
    /// The pods of this node.
    pub board: Arc<PodBoard>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Its streams.
    pub streaming: Arc<dyn Streaming>,
    /// Who may ask; without it only administrators.
    pub reviews: Option<Arc<Reviews>>,
}

/// The server, listening.
pub struct NodeServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    node_name: String,
    log_root: PathBuf,
}

/// What all requests share.
pub(crate) struct Serving {
    pub(crate) access: Access,
    pub(crate) board: Arc<PodBoard>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) streaming: Arc<dyn Streaming>,
    pub(crate) log_root: PathBuf,
    /// Free places for logs and for streams.
    pub(crate) logs: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// Ends what has no end of its own.
    pub(crate) shutdown: CancellationToken,
}

impl NodeServer {
    /// Begins to listen. Nothing is accepted before [`NodeServer::run`].
    pub async fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        let tls = tls(options.identity, &options.client_ca_pem)?;
        let listen = |source| ServerError::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Self {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            address,
            node_name: options.node_name,
            log_root: options.log_root,
        })
    }

    /// The address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then ends all streams.
    pub async fn run(self, doors: ServerDoors, shutdown: CancellationToken) {
        let serving = Arc::new(Serving {
            access: Access {
                node_name: self.node_name,
                reviews: doors.reviews,
            },
            board: doors.board,
            runtime: doors.runtime,
            streaming: doors.streaming,
            log_root: self.log_root,
            logs: Arc::new(Semaphore::new(LOGS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            shutdown: shutdown.clone(),
        });
        let acceptor = self.acceptor;
        let serve = |stream: TcpStream| {
            for_long_streams(&stream);
            connection::serve(stream, acceptor.clone(), Arc::clone(&serving))
        };
        let open = accept(self.listener, CONNECTIONS_MAX, &shutdown, serve).await;
        open.drain(DRAIN_LIMIT).await;
    }
}

/// A client without a certificate passes here; it may have a token.
fn tls(identity: Identity, client_ca_pem: &[u8]) -> Result<ServerConfig, ServerError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_ca_pem).ok_or(ServerError::Pem)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)?;
    // Streams into pods take over their connection, which HTTP/2 has no way for.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
