//! Whether a token is good now, and who bears it (Kubernetes: `pkg/serviceaccount/claims.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use swiftlet_client::api::{ResourceName, UserInfo, resources};
use swiftlet_store::Snapshot;

use super::claims::user_name;
use super::{Bound, Claims, ISSUER, SigningKey};
use crate::authn::AUTHENTICATED;
use crate::{encode, route};

/// How long after its deletion began an object still vouches for a token (`jwt.DefaultLeeway`).
const DELETION_LEEWAY_S: i64 = 60;

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not a token of this cluster.
    #[error("invalid bearer token")]
    Unknown,
    /// It is for somebody else.
    #[error("token audiences do not include the expected one")]
    Audience,
    /// Its time is over, or has not begun.
    #[error("service account token has expired")]
    Expired,
    /// What it is bound to is gone, or is another object of the same name.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// Who bears a token.
pub(crate) struct Bearer {
    /// The service account.
    pub(crate) user: UserInfo,
    /// The audiences for which the token is, of those that were asked for.
    pub(crate) audiences: Vec<String>,
}

/// Who bears the token. `audiences`: one of them must be the token's.
pub(crate) fn user_of_token(
    key: &SigningKey,
    snapshot: &Snapshot,
    token: &str,
    audiences: &[&str],
    now: Timestamp,
) -> Result<Bearer, TokenError> {
    let claims = key.verified(token).ok_or(TokenError::Unknown)?;
    if claims.iss != ISSUER {
        return Err(TokenError::Unknown);
    }
    let confirmed = audiences.iter().map(ToString::to_string);
    let confirmed: Vec<_> = confirmed.filter(|one| claims.aud.contains(one)).collect();
    if confirmed.is_empty() {
        return Err(TokenError::Audience);
    }
    let now_s = now.as_second();
    if claims.exp <= now_s || claims.nbf > now_s {
        return Err(TokenError::Expired);
    }
    let kubernetes = &claims.kubernetes;
    let stands = |resource, namespace: &str, bound: &Bound| {
        still_there(snapshot, &resource, namespace, bound, now)
    };
    let namespace = &kubernetes.namespace;
    let mut valid = stands(
        resources::SERVICE_ACCOUNTS,
        namespace,
        &kubernetes.serviceaccount,
    );
    if let Some(secret) = &kubernetes.secret {
        valid &= stands(resources::SECRETS, namespace, secret);
    }
    match (&kubernetes.pod, &kubernetes.node) {
        (Some(pod), _) => valid &= stands(resources::PODS, namespace, pod),
        (None, Some(node)) => valid &= stands(resources::NODES, "", node),
        (None, None) => (),
    }
    if valid {
        Ok(Bearer {
            user: user(&claims),
            audiences: confirmed,
        })
    } else {
        Err(TokenError::Invalidated)
    }
}

/// The parts of an object that say whether it is the one that a token names.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Identity {
    metadata: IdentityMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct IdentityMetadata {
    uid: String,
    deletion_timestamp: Option<Timestamp>,
}

fn still_there(
    snapshot: &Snapshot,
    resource: &ResourceName,
    namespace: &str,
    bound: &Bound,
    now: Timestamp,
) -> bool {
    let Some(resource) = route::resource(resource) else {
        return false;
    };
    let Some(entry) = snapshot.get(&encode::path(resource, namespace, &bound.name)) else {
        return false;
    };
    let found: Identity = serde_json::from_slice(&entry.value).unwrap_or_default();
    let ends_s = found.metadata.deletion_timestamp.map(Timestamp::as_second);
    let over = ends_s.is_some_and(|ends_s| ends_s < now.as_second() - DELETION_LEEWAY_S);
    found.metadata.uid == bound.uid && !over
}

fn user(claims: &Claims) -> UserInfo {
    let kubernetes = &claims.kubernetes;
    let mut extra = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    if !claims.jti.is_empty() {
        put("credential-id", format!("JTI={}", claims.jti));
    }
    for (kind, bound) in [("pod", &kubernetes.pod), ("node", &kubernetes.node)] {
        let Some(bound) = bound else {
            continue;
        };
        put(&format!("{kind}-name"), bound.name.clone());
        if !bound.uid.is_empty() {
            put(&format!("{kind}-uid"), bound.uid.clone());
        }
    }
    UserInfo {
        name: user_name(&kubernetes.namespace, &kubernetes.serviceaccount.name),
        uid: kubernetes.serviceaccount.uid.clone(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{}", kubernetes.namespace),
            AUTHENTICATED.into(),
        ],
        extra,
    }
}
