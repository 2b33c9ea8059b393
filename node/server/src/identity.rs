//! The certificate that the node serves with.
//!
//! One that the cluster's authority has signed for the node, if the kubeconfig has such a one: the
//! API server knows the node by its name in it (`system:node:<name>`). Otherwise one that the node
//! makes itself at its start, as a kubelet does, and that nobody can verify.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// None can be made.
    #[error("cannot make a serving certificate")]
    Make(#[from] rcgen::Error),
    /// It is no PEM.
    #[error("the serving certificate or its key is not valid PEM")]
    Pem,
}

/// A certificate chain and its key.
pub struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for Identity {
    /// Keeps the key out of logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// From PEM texts.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain = certificates(chain).ok_or(IdentityError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Pem)?;
        Ok(Self { chain, key })
    }

    /// From files: `tlsCertFile` and `tlsPrivateKeyFile`.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, IdentityError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| IdentityError::Read {
                path: path.to_owned(),
                source,
            })
        };
        Self::from_pem(&read(chain)?, &read(key)?)
    }

    /// Made now, for this name and these addresses.
    pub fn self_made(name: &str, addresses: &[IpAddr]) -> Result<Self, IdentityError> {
        let mut names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        names.push(name.to_owned());
        let mut params = CertificateParams::new(names)?;
        let common_name = format!("{name}@self-signed");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Self::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
    }

    /// Whether it says that it may be served with.
    pub fn is_for_serving(&self) -> bool {
        let Some(first) = self.chain.first() else {
            return false;
        };
        let Ok((_, certificate)) = X509Certificate::from_der(first) else {
            return false;
        };
        let usages = certificate.extended_key_usage().ok().flatten();
        usages.is_some_and(|usages| usages.value.server_auth)
    }
}

/// The certificates of a PEM text; there is at least one.
pub(crate) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_makes_itself_is_for_serving() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let identity = Identity::self_made("worker-1", &[address]).unwrap();
        assert!(identity.is_for_serving());
        assert!(!format!("{identity:?}").contains("key"));
        assert!(Identity::from_pem(b"x", b"y").is_err());
    }
}
