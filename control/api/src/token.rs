//! Service account tokens: JSON web tokens, signed with one key of the cluster.
//!
//! ```text
//! POST serviceaccounts/<name>/token   verb/token.rs   claims, signature
//! Authorization: Bearer <token>       verify.rs       signature, times, audience, bound objects
//! GET /openid/v1/jwks                 this file       the key, for others who verify
//! ```

mod claims;
mod key;
mod verify;

use serde_json::{Value, json};

pub(crate) use claims::{Bound, Claims, KubernetesClaims};
pub use key::{KeyError, SigningKey};
pub(crate) use verify::user_of_token;

/// Who issues the tokens, and for whom they are unless the request says otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// `/.well-known/openid-configuration`.
pub(crate) fn openid_configuration() -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// `/openid/v1/jwks`.
pub(crate) fn key_set(key: &SigningKey) -> Value {
    json!({ "keys": [key.public_jwk()] })
}

#[cfg(test)]
mod tests;
