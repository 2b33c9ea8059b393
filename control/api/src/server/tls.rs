//! TLS: our certificate, and clients' certificates where they have one.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::{ServerError, ServerOptions};

/// A client without a certificate passes here and is refused by the API, with a Status instead of
/// a broken connection.
pub(super) fn config(options: &ServerOptions) -> Result<ServerConfig, ServerError> {
    let pem = |name: &str| ServerError::Pem(name.into());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&options.client_ca_pem).ok_or_else(|| pem("client CA"))? {
        roots.add(certificate).map_err(ServerError::Tls)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(ServerError::Ca)?;
    let chain = certificates(&options.identity.certificate_pem)
        .ok_or_else(|| pem("serving certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(options.identity.key_pem.as_bytes())
        .map_err(|_| pem("serving key"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ServerError::Tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(ServerError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .ok()?;
    (!list.is_empty()).then_some(list)
}
