//! Who makes a request: the name in the client's certificate, or in a service account's token.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;
use swiftlet_client::api::UserInfo;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The group of everybody who is known.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// Reads the identity from a certificate that TLS has verified against the CA: the common name is
/// the user, each organisation a group.
pub(crate) fn user_of_certificate(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject
        .iter_common_name()
        .next()?
        .as_str()
        .ok()?
        .to_string();
    if name.is_empty() {
        return None;
    }
    let organisations = subject
        .iter_organization()
        .filter_map(|value| value.as_str().ok());
    let groups = organisations
        .chain([AUTHENTICATED])
        .map(Into::into)
        .collect();
    Some(UserInfo {
        name,
        groups,
        ..UserInfo::default()
    })
}

/// The token of an `Authorization: Bearer` header.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
