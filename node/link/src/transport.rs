//! A gRPC channel over mutual TLS.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::kubeconfig::Kubeconfig;

/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// An idle link is pinged that often: a dead peer is noticed in half a minute, not in the quarter
/// of an hour that TCP takes.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// How long the answer to a ping may take.
const PING_LIMIT: Duration = Duration::from_secs(10);

/// Why no channel can be made from a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A certificate or key is no PEM.
    #[error("{what} is not valid PEM")]
    Pem {
        /// Which part of the kubeconfig.
        what: &'static str,
    },
    /// rustls refuses certificate or key.
    #[error("the client certificate cannot be used")]
    Tls(#[from] rustls::Error),
    /// The server's address is no host and port.
    #[error("server address {0} is malformed")]
    Address(String),
}

/// Makes channels to one control plane.
#[derive(Clone)]
pub(crate) struct Transport {
    endpoint: Endpoint,
    authority: String,
    server_name: ServerName<'static>,
    tls: TlsConnector,
}

impl Transport {
    pub(crate) fn new(config: &Kubeconfig) -> Result<Self, TransportError> {
        let bad_address = || TransportError::Address(config.authority.clone());
        let host = config
            .authority
            .rsplit_once(':')
            .map_or(&*config.authority, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let server_name = ServerName::try_from(host).map_err(|_| bad_address())?;
        // The scheme says http because TLS is ours, below the channel.
        let endpoint = Endpoint::from_shared(format!("http://{}", config.authority))
            .map_err(|_| bad_address())?
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true);
        let tls = TlsConnector::from(Arc::new(tls_config(config)?));
        Ok(Self {
            endpoint,
            authority: config.authority.clone(),
            server_name,
            tls,
        })
    }

    pub(crate) async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        let Self {
            endpoint,
            authority,
            server_name,
            tls,
        } = self.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (authority, server_name, tls) =
                (authority.clone(), server_name.clone(), tls.clone());
            async move {
                let tcp = TcpStream::connect(authority).await?;
                tcp.set_nodelay(true)?;
                tls.connect(server_name, tcp).await.map(TokioIo::new)
            }
        });
        endpoint.connect_with_connector(connector).await
    }
}

fn tls_config(config: &Kubeconfig) -> Result<rustls::ClientConfig, TransportError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&config.ca_pem, "certificate-authority")? {
        roots.add(certificate)?;
    }
    let chain = certificates(&config.certificate_pem, "client-certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&config.key_pem)
        .map_err(|_| TransportError::Pem { what: "client-key" })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(tls)
}

fn certificates(
    pem: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TransportError::Pem { what }),
    }
}
