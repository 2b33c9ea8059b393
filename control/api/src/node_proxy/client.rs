//! A connection to a node.
//!
//! The node's certificate must come from the cluster's authority and bear the node's name, as
//! `system:node:<name>` or as the address that is connected to: another node cannot stand in for
//! it, whatever address it claims.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use swiftlet_client::api::ApiError;
use swiftlet_proto::relay::for_long_streams;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::Place;
use crate::authn;
use crate::error;
use crate::pki::Identity;

/// How long a node may take to accept a connection, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Logs and streams that pass through this server at one time.
const SESSIONS_MAX: usize = 2048;

/// Why nodes cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeClientError {
    /// A certificate or a key is no PEM.
    #[error("the {0} is not valid PEM")]
    Pem(&'static str),
    /// It cannot be used.
    #[error("the client certificate for nodes cannot be used")]
    Tls(#[from] Error),
}

/// Connects to nodes under one identity. A clone shares the places for sessions.
#[derive(Clone)]
pub struct NodeClient {
    inner: Arc<Inner>,
}

struct Inner {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    sessions: Arc<Semaphore>,
}

impl fmt::Debug for NodeClient {
    /// Keeps the key out of logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NodeClient").finish_non_exhaustive()
    }
}

impl NodeClient {
    /// Connects as `identity`; nodes' certificates come from the authority `ca_pem`.
    pub fn new(identity: &Identity, ca_pem: &str) -> Result<Self, NodeClientError> {
        let list = |pem: &str, what| {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            let found = found.ok().filter(|found| !found.is_empty());
            found.ok_or(NodeClientError::Pem(what))
        };
        let mut roots = RootCertStore::empty();
        for certificate in list(ca_pem, "authority")? {
            roots.add(certificate)?;
        }
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
            .map_err(|_| NodeClientError::Pem("key"))?;
        let inner = Inner {
            chain: list(&identity.certificate_pem, "client certificate")?,
            key,
            roots: Arc::new(roots),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            sessions: Arc::new(Semaphore::new(SESSIONS_MAX)),
        };
        // What is wrong with the key is found out now and not with the first request.
        inner.tls(Trust::Nobody)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A place for a session.
    pub(super) fn session(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let place = Arc::clone(&self.inner.sessions).try_acquire_owned();
        place.map_err(|_| {
            error::too_many_requests("too many logs and streams of pods are open at this moment")
        })
    }

    /// Connects to a node. `unverified`: whoever answers there is taken for it.
    pub(super) async fn connect(
        &self,
        place: &Place,
        unverified: bool,
    ) -> Result<TlsStream<TcpStream>, ApiError> {
        let trust = if unverified {
            Trust::Everybody
        } else {
            Trust::Node(format!("system:node:{}", place.node))
        };
        let config = self.inner.tls(trust).map_err(error::internal)?;
        let address = SocketAddr::new(place.address, place.port);
        let connected = tokio::time::timeout(CONNECT_LIMIT, async {
            let tcp = TcpStream::connect(address).await?;
            for_long_streams(&tcp);
            let name = ServerName::IpAddress(place.address.into());
            TlsConnector::from(Arc::new(config))
                .connect(name, tcp)
                .await
        });
        let node = &place.node;
        let connected = connected.await.map_err(|_| {
            error::internal(format_args!("dial node {node} at {address}: i/o timeout"))
        })?;
        connected.map_err(|cause| {
            error::internal(format_args!("dial node {node} at {address}: {cause}"))
        })
    }
}

impl Inner {
    fn tls(&self, trust: Trust) -> Result<ClientConfig, Error> {
        let verifier = NodeVerifier {
            trust,
            roots: Arc::clone(&self.roots),
            provider: Arc::clone(&self.provider),
        };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Whose certificate is accepted.
#[derive(Debug)]
enum Trust {
    Nobody,
    /// That of the node with this name in its certificate, or of the address.
    Node(String),
    Everybody,
}

#[derive(Debug)]
struct NodeVerifier {
    trust: Trust,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let node = match &self.trust {
            Trust::Everybody => return Ok(ServerCertVerified::assertion()),
            Trust::Nobody => return Err(CertificateError::ApplicationVerificationFailure.into()),
            Trust::Node(node) => node,
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        let user = authn::user_of_certificate(end_entity);
        if user.is_none_or(|user| user.name != *node) {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
