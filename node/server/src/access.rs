//! Who asks, and whether it may: a client certificate of the cluster's authority or a token, and
//! then the control plane's word.
//!
//! Attributes: `pkg/kubelet/server/auth.go` of Kubernetes.

pub(crate) mod reviews;

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::reviews::{Question, Reviews};
use crate::answer::{Answer, text};

/// The group whose members may do everything, by the cluster's authority's own word.
const MASTERS: &str = "system:masters";
/// The group of everybody who is known.
const AUTHENTICATED: &str = "system:authenticated";

/// Somebody who is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name.
    pub(crate) name: String,
    /// The groups.
    pub(crate) groups: Vec<String>,
}

/// The identity in a certificate that TLS has verified: the common name is the user, each
/// organisation a group.
pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|value| value.as_str().ok())
        .chain([AUTHENTICATED])
        .map(ToOwned::to_owned)
        .collect();
    (!name.is_empty()).then_some(Caller { name, groups })
}

/// Decides who may ask this node.
pub(crate) struct Access {
    pub(crate) node_name: String,
    /// Without it, certificates of the group `system:masters` are let in, and nobody else.
    pub(crate) reviews: Option<Arc<Reviews>>,
}

impl Access {
    /// Lets the request pass, or refuses it: 401 for the unknown, 403 for those who may not.
    pub(crate) async fn check(
        &self,
        certificate: Option<&Caller>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Answer> {
        let unauthorized = || text(StatusCode::UNAUTHORIZED, "Unauthorized");
        let (caller, is_certified) = if let Some(caller) = certificate {
            (caller.clone(), true)
        } else {
            let caller = self.of_token(headers).await?;
            (caller.ok_or_else(unauthorized)?, false)
        };
        if is_certified && caller.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let question = Question {
            verb: verb(method, path),
            subresource: subresource(path),
            node: &self.node_name,
        };
        if let Some(reviews) = &self.reviews {
            match reviews.may(&caller, &question).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(unanswered(&error)),
            }
        }
        let words = format!(
            "Forbidden (user={}, verb={}, resource=nodes, subresource={})",
            caller.name, question.verb, question.subresource
        );
        Err(text(StatusCode::FORBIDDEN, words))
    }

    async fn of_token(&self, headers: &HeaderMap) -> Result<Option<Caller>, Answer> {
        match (bearer_token(headers), &self.reviews) {
            (Some(token), Some(reviews)) => {
                let caller = reviews.whose(token).await;
                caller.map_err(|error| unanswered(&error))
            }
            _ => Ok(None),
        }
    }
}

/// The control plane was asked and did not answer: nobody is let in.
fn unanswered(error: &reviews::ReviewsError) -> Answer {
    tracing::warn!(%error, "who may ask this node cannot be found out");
    let words = format!("Authorization error: {error}");
    text(StatusCode::INTERNAL_SERVER_ERROR, words)
}

/// The token of an `Authorization: Bearer` header.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Streams are written to, whatever the method: a WebSocket begins with GET, and who may only read
/// must not run commands (Kubernetes' kubelet lets them: `nodes/proxy` with `get`).
fn verb(method: &Method, path: &str) -> &'static str {
    if matches!(first_part(path), "exec" | "attach" | "portForward" | "run") {
        return "create";
    }
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// The part of the node that a path belongs to; most belong to `proxy`, the right to everything.
fn subresource(path: &str) -> &'static str {
    match first_part(path) {
        "stats" => "stats",
        "metrics" => "metrics",
        "logs" => "log",
        "checkpoint" => "checkpoint",
        _ => "proxy",
    }
}

/// As the routes see it.
fn first_part(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    parts.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access {
            node_name: "worker-1".into(),
            reviews: None,
        }
    }

    async fn code(caller: Option<&Caller>, headers: &HeaderMap) -> Option<StatusCode> {
        let check = access();
        let check = check.check(caller, &Method::GET, "/pods", headers);
        check.await.err().map(|answer| answer.status())
    }

    #[tokio::test]
    async fn only_masters_pass_where_nobody_can_be_asked() {
        let caller = |group: &str| Caller {
            name: "jane".into(),
            groups: vec![group.into()],
        };
        let mut headers = HeaderMap::new();
        assert_eq!(code(Some(&caller(MASTERS)), &headers).await, None);
        let refused = code(Some(&caller("dev")), &headers).await;
        assert_eq!(refused, Some(StatusCode::FORBIDDEN));
        assert_eq!(code(None, &headers).await, Some(StatusCode::UNAUTHORIZED));
        headers.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(code(None, &headers).await, Some(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn paths_belong_to_the_parts_that_the_kubelet_names() {
        assert_eq!(subresource("/metrics/cadvisor"), "metrics");
        assert_eq!(subresource("/stats/summary"), "stats");
        assert_eq!(subresource("/exec/a/b/c"), "proxy");
        assert_eq!(subresource("//stats/summary"), "stats");
        assert_eq!(verb(&Method::POST, "/pods"), "create");
        assert_eq!(verb(&Method::GET, "/pods"), "get");
    }

    #[test]
    fn who_may_only_read_runs_no_commands() {
        for path in ["/exec/a/b/c", "//attach/a/b/c", "/portForward/a/b"] {
            assert_eq!(verb(&Method::GET, path), "create", "{path}");
        }
    }
}
