//! Clients with and without certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest wait for something that happens at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The cluster's authority.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A client's certificate and key.
pub(crate) type Certified = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "ca");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&pem, key).unwrap();
        Self { pem, issuer }
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.pem.clone()
    }

    /// A client of that group.
    pub(crate) fn client(&self, group: &str) -> Certified {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }

    /// One that may do everything.
    pub(crate) fn master(&self) -> Certified {
        self.client("system:masters")
    }
}

/// Connects, whoever the server is.
pub(crate) async fn connect(
    address: SocketAddr,
    client: Option<Certified>,
) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)));
    let config = match client {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .unwrap(),
        None => config.with_no_client_auth(),
    };
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("worker-1").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, tcp).await.unwrap()
}

/// Sends one request over a connection of its own.
pub(crate) async fn send(
    address: SocketAddr,
    client: Option<Certified>,
    request: Request<Empty<Bytes>>,
) -> Response<Incoming> {
    let stream = connect(address, client).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.unwrap();
    // The connection goes on for as long as the body.
    tokio::spawn(async move { sender.ready().await });
    response
}

pub(crate) fn request(method: Method, path: &str) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(method).uri(path);
    request.header("Host", "node").body(Empty::new()).unwrap()
}

/// An upgrade to SPDY.
pub(crate) fn upgrade(path: &str) -> Request<Empty<Bytes>> {
    let mut request = request(Method::POST, path);
    let headers = request.headers_mut();
    headers.insert("Connection", "Upgrade".parse().unwrap());
    headers.insert("Upgrade", "SPDY/3.1".parse().unwrap());
    request
}

/// The whole body as text.
pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect());
    let body = body.await.expect("the body ends").unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
