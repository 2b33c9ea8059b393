//! The key that signs tokens: ES256, that is ECDSA on P-256 with SHA-256 (RFC 7518, 3.4).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

use super::Claims;

/// Bytes of a coordinate of a point on P-256.
const COORDINATE_BYTES: usize = 32;
/// A public point: one byte that says "not compressed", and two coordinates.
const POINT_BYTES: usize = 1 + 2 * COORDINATE_BYTES;

/// What can go wrong with a signing key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be made or read.
    #[error("cannot make or read the key for service account tokens")]
    Unreadable(#[source] rcgen::Error),
    /// It is of another kind.
    #[error("the key for service account tokens is not an ECDSA key on P-256")]
    WrongKind,
}

/// The key. A clone is a handle to the same one.
#[derive(Clone)]
pub struct SigningKey {
    inner: Arc<Inner>,
}

struct Inner {
    pair: EcdsaKeyPair,
    point: Vec<u8>,
    id: String,
}

impl fmt::Debug for SigningKey {
    /// Keeps the key out of logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SigningKey")
            .field("id", &self.inner.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Makes a new one.
    pub fn generate() -> Result<Self, KeyError> {
        Self::of_pair(&KeyPair::generate().map_err(KeyError::Unreadable)?)
    }

    /// Reads one from its PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Self::of_pair(&KeyPair::from_pem(pem).map_err(KeyError::Unreadable)?)
    }

    /// Takes over a pair of keys.
    pub(crate) fn of_pair(pair: &KeyPair) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let point = pair.public_key_raw().to_vec();
        let signing = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pair.serialize_der(),
            &random,
        )
        .map_err(|_| KeyError::WrongKind)?;
        if point.len() != POINT_BYTES {
            return Err(KeyError::WrongKind);
        }
        // The key's id is a digest of its public part, as Kubernetes makes it.
        let hash = digest::digest(&digest::SHA256, &pair.subject_public_key_info());
        Ok(Self {
            inner: Arc::new(Inner {
                pair: signing,
                point,
                id: URL_SAFE_NO_PAD.encode(hash),
            }),
        })
    }

    /// The encoded token of some claims. `None`: the system gave no random numbers.
    pub(crate) fn sign(&self, claims: &Claims) -> Option<String> {
        let header = json!({ "alg": "ES256", "kid": self.inner.id });
        let claims = serde_json::to_vec(claims).ok()?;
        let mut token = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.inner.pair.sign(&SystemRandom::new(), token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.ok()?, &mut token);
        Some(token)
    }

    /// The claims of a token that this key signed; `None` for anything else.
    pub(crate) fn verified(&self, token: &str) -> Option<Claims> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header["alg"] != "ES256" {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.inner.point)
            .verify(message.as_bytes(), &signature)
            .ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The public part (RFC 7517).
    pub(super) fn public_jwk(&self) -> Value {
        let (x, y) = self.inner.point[1..].split_at(COORDINATE_BYTES);
        json!({
            "use": "sig",
            "kty": "EC",
            "kid": self.inner.id,
            "crv": "P-256",
            "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}
