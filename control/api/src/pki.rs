//! The development CA: one certificate authority per data folder, and certificates from it.
//!
//! ```text
//! <data>/pki/ca.crt ca.key                the CA
//! <data>/pki/<name>.crt <name>.key        certificates, made when missing and kept
//! <data>/pki/sa.key                       the key for service account tokens
//! ```

mod files;
mod kubeconfig;
mod service_account;

use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

pub use kubeconfig::Kubeconfig;

/// Years that a certificate is valid.
const VALIDITY_YEARS: i32 = 10;

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or folder cannot be used.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A key or certificate cannot be made or read.
    #[error("cannot make or read the certificate {name}")]
    Certificate {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        source: rcgen::Error,
    },
    /// The key for service account tokens cannot be used.
    #[error(transparent)]
    SigningKey(#[from] crate::token::KeyError),
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// PEM of the certificate.
    pub certificate_pem: String,
    /// PEM of the private key.
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    /// Keeps the key out of logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// The CA of one data folder.
pub struct Pki {
    folder: PathBuf,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Opens the CA in `<data>/pki`, or makes it.
    pub fn open(data: &Path) -> Result<Self, PkiError> {
        let folder = data.join("pki");
        files::create_folder(&folder)?;
        let identity = if let Some(identity) = files::read(&folder, "ca")? {
            identity
        } else {
            let identity = make_ca().map_err(failed("ca"))?;
            files::write(&folder, "ca", &identity)?;
            identity
        };
        let key = KeyPair::from_pem(&identity.key_pem).map_err(failed("ca"))?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate_pem, key);
        let issuer = issuer.map_err(failed("ca"))?;
        Ok(Self {
            folder,
            certificate_pem: identity.certificate_pem,
            issuer,
        })
    }

    /// PEM of the CA's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The serving certificate for these names and addresses, beside localhost, `kubernetes` and
    /// the machine's own name. One that lacks a name is made anew.
    pub fn serving(&self, names: &[String]) -> Result<Identity, PkiError> {
        let mut all: Vec<String> = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(Into::into)
        .to_vec();
        all.extend(files::host_name());
        all.extend(names.iter().cloned());
        all.sort_unstable();
        all.dedup();
        if let Some(identity) = files::read(&self.folder, "apiserver")?
            && covers(&identity, &all)
        {
            return Ok(identity);
        }
        let make = || {
            let mut params = CertificateParams::new(all)?;
            params
                .distinguished_name
                .push(DnType::CommonName, "kube-apiserver");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            self.sign(params)
        };
        let identity = make().map_err(failed("apiserver"))?;
        files::write(&self.folder, "apiserver", &identity)?;
        Ok(identity)
    }

    /// A client certificate: `user` is its common name, `groups` its organisations. `file` names
    /// its files.
    pub fn client(&self, file: &str, user: &str, groups: &[&str]) -> Result<Identity, PkiError> {
        if let Some(identity) = files::read(&self.folder, file)? {
            return Ok(identity);
        }
        self.make(file, user, groups, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn make(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<Identity, PkiError> {
        let make = || {
            let mut params = CertificateParams::new(Vec::new())?;
            for group in groups {
                params
                    .distinguished_name
                    .push(DnType::OrganizationName, *group);
            }
            params.distinguished_name.push(DnType::CommonName, user);
            params.extended_key_usages = usages.to_vec();
            self.sign(params)
        };
        let identity = make().map_err(failed(file))?;
        files::write(&self.folder, file, &identity)?;
        Ok(identity)
    }

    /// The administrator: `kubernetes-admin` in `system:masters`.
    pub fn admin(&self) -> Result<Identity, PkiError> {
        self.client("admin", "kubernetes-admin", &["system:masters"])
    }

    /// The API server as its nodes know it (kubeadm's `apiserver-kubelet-client`).
    pub fn kubelet_client(&self) -> Result<Identity, PkiError> {
        self.client(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            &["system:masters"],
        )
    }

    /// A node agent: `system:node:<name>` in `system:nodes`. The node's own server serves with the
    /// same certificate. It names no host, so that it can stand for no other server.
    pub fn node(&self, name: &str) -> Result<Identity, PkiError> {
        let file = format!("node-{name}");
        if let Some(identity) = files::read(&self.folder, &file)?
            && is_for_serving(&identity)
        {
            return Ok(identity);
        }
        let usages = [
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        self.make(
            &file,
            &format!("system:node:{name}"),
            &["system:nodes"],
            &usages,
        )
    }

    /// A kubeconfig for one of this CA's identities.
    pub fn kubeconfig<'a>(
        &'a self,
        server: &'a str,
        user: &'a str,
        identity: &'a Identity,
    ) -> Kubeconfig<'a> {
        Kubeconfig {
            server,
            ca_pem: &self.certificate_pem,
            user,
            identity,
        }
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity, rcgen::Error> {
        limit_validity(&mut params);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn failed(name: &str) -> impl FnOnce(rcgen::Error) -> PkiError {
    let name = name.to_string();
    move |source| PkiError::Certificate { name, source }
}

fn make_ca() -> Result<Identity, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    // Without a subject, CA and leaf look self-signed to OpenSSL.
    params
        .distinguished_name
        .push(DnType::CommonName, "swiftlet-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    limit_validity(&mut params);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Identity {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    })
}

fn limit_validity(params: &mut CertificateParams) {
    let year = i32::from(
        jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .year(),
    );
    // From the year before: clocks of other machines may be behind.
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + VALIDITY_YEARS, 1, 1);
}

/// Whether a certificate says that a server may use it: those of older nodes do not.
fn is_for_serving(identity: &Identity) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let usages = certificate.extended_key_usage().ok().flatten();
    usages.is_some_and(|usages| usages.value.server_auth)
}

/// Whether a certificate names all of `names`.
fn covers(identity: &Identity, names: &[String]) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return false;
    };
    let served: Vec<String> = extension
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            x509_parser::extensions::GeneralName::DNSName(name) => Some((*name).to_string()),
            x509_parser::extensions::GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect();
    names.iter().all(|name| served.contains(name))
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

#[cfg(test)]
mod tests;
