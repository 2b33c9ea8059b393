//! `TokenReview` and `SubjectAccessReview`: the control plane says who bears a token, and what
//! somebody may do. Answers are kept for a while, as the kubelet keeps them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::Caller;
use crate::identity::{Identity, certificates};

/// How long the control plane may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of its answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long an answer is kept: the kubelet's shortest time (`cacheUnauthorizedTTL` of
/// `authorization.webhook`), so that a right that is taken away is gone as soon.
const KEPT: Duration = Duration::from_secs(30);
/// Answers of one sort that are kept.
const KEPT_MAX: usize = 1024;
/// Questions that are open at one time: whoever reaches the node may make it ask.
const QUESTIONS_MAX: usize = 32;
/// Longest token, in bytes, that is asked about.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Why the control plane's word is not known.
#[derive(Debug, thiserror::Error)]
pub enum ReviewsError {
    /// It cannot be reached.
    #[error("cannot reach the control plane at {0}")]
    Unreachable(String, #[source] std::io::Error),
    /// The connection broke.
    #[error("the connection to the control plane broke")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("the control plane did not answer within {} s", LIMIT.as_secs())]
    Timeout,
    /// It refused, or said something else.
    #[error("the control plane answered {0} to {1}")]
    Answer(StatusCode, &'static str),
    /// The certificates that are to be used cannot be.
    #[error("cannot use the client certificate or the authority")]
    Tls(#[from] rustls::Error),
    /// They are no PEM, or the address is none.
    #[error("{0} is malformed")]
    Malformed(&'static str),
}

/// Where the control plane is, and who this node is to it.
pub struct ControlPlaneAddress<'a> {
    /// `host:port`.
    pub authority: &'a str,
    /// PEM of its authority.
    pub ca_pem: &'a [u8],
    /// PEM of the node's client certificate.
    pub certificate_pem: &'a [u8],
    /// PEM of its key.
    pub key_pem: &'a [u8],
}

/// What somebody wants of this node.
pub(crate) struct Question<'a> {
    pub(crate) verb: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) node: &'a str,
}

type Kept<T> = HashMap<String, (Instant, T)>;

/// Asks the control plane. The memory of answers is behind mutexes: requests look up and put in,
/// and nobody waits while holding one.
pub struct Reviews {
    authority: String,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    tokens: Mutex<Kept<Caller>>,
    /// Tokens that are nobody's, apart: made-up ones must not push out good ones.
    strange: Mutex<Kept<()>>,
    rights: Mutex<Kept<bool>>,
    questions: Semaphore,
}

impl Reviews {
    /// Asks this control plane.
    pub fn new(address: &ControlPlaneAddress<'_>) -> Result<Self, ReviewsError> {
        let mut roots = RootCertStore::empty();
        let authorities = certificates(address.ca_pem);
        for certificate in authorities.ok_or(ReviewsError::Malformed("the authority"))? {
            roots.add(certificate)?;
        }
        let identity = Identity::from_pem(address.certificate_pem, address.key_pem)
            .map_err(|_| ReviewsError::Malformed("the client certificate"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(identity.chain, identity.key)?;
        let host = address.authority.rsplit_once(':');
        let host = host.map_or(address.authority, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let server_name =
            ServerName::try_from(host).map_err(|_| ReviewsError::Malformed("the address"))?;
        Ok(Self {
            authority: address.authority.to_owned(),
            server_name,
            tls: TlsConnector::from(Arc::new(tls)),
            tokens: Mutex::default(),
            strange: Mutex::default(),
            rights: Mutex::default(),
            questions: Semaphore::new(QUESTIONS_MAX),
        })
    }

    /// Who bears the token; `None`: nobody.
    pub(crate) async fn whose(&self, token: &str) -> Result<Option<Caller>, ReviewsError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        if let Some(caller) = kept(&self.tokens, token) {
            return Ok(Some(caller));
        }
        if kept(&self.strange, token).is_some() {
            return Ok(None);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = self.ask(path, &review).await?;
        let status = &answer["status"];
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let caller = (status["authenticated"] == true)
            .then(|| {
                let groups = status["user"]["groups"].as_array();
                Some(Caller {
                    name: text(&status["user"]["username"]).filter(|name| !name.is_empty())?,
                    groups: groups.into_iter().flatten().filter_map(text).collect(),
                })
            })
            .flatten();
        match &caller {
            Some(caller) => keep(&self.tokens, token, caller.clone()),
            None => keep(&self.strange, token, ()),
        }
        Ok(caller)
    }

    /// Whether somebody may do something with this node.
    pub(crate) async fn may(
        &self,
        caller: &Caller,
        question: &Question<'_>,
    ) -> Result<bool, ReviewsError> {
        let spec = json!({
            "user": caller.name,
            "groups": caller.groups,
            "resourceAttributes": {
                "verb": question.verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": question.subresource,
                "name": question.node,
            },
        });
        let key = spec.to_string();
        if let Some(allowed) = kept(&self.rights, &key) {
            return Ok(allowed);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = self.ask(path, &review).await?;
        let allowed = answer["status"]["allowed"] == true;
        keep(&self.rights, &key, allowed);
        Ok(allowed)
    }

    async fn ask(&self, path: &'static str, body: &Value) -> Result<Value, ReviewsError> {
        let asked = tokio::time::timeout(LIMIT, async {
            // The semaphore is never closed.
            let _place = self.questions.acquire().await;
            self.exchange(path, body).await
        });
        asked.await.map_err(|_| ReviewsError::Timeout)?
    }

    async fn exchange(&self, path: &'static str, body: &Value) -> Result<Value, ReviewsError> {
        let unreachable = |source| ReviewsError::Unreachable(self.authority.clone(), source);
        let tcp = TcpStream::connect(&self.authority)
            .await
            .map_err(unreachable)?;
        let tls = self.tls.connect(self.server_name.clone(), tcp).await;
        let tls = tls.map_err(unreachable)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, &self.authority)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|_| ReviewsError::Malformed("the address"))?;
        let response = sender.send_request(request).await?;
        let code = response.status();
        let bytes = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = bytes.collect().await;
        let bytes = bytes.map_err(|_| ReviewsError::Answer(code, path))?;
        if !code.is_success() {
            return Err(ReviewsError::Answer(code, path));
        }
        serde_json::from_slice(&bytes.to_bytes()).map_err(|_| ReviewsError::Answer(code, path))
    }
}

fn kept<T: Clone>(memory: &Mutex<Kept<T>>, key: &str) -> Option<T> {
    let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, answer) = memory.get(key)?;
    (at.elapsed() < KEPT).then(|| answer.clone())
}

fn keep<T>(memory: &Mutex<Kept<T>>, key: &str, answer: T) {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    // A token is not in memory for longer than it is of use.
    memory.retain(|_, (at, _)| at.elapsed() < KEPT);
    if memory.len() < KEPT_MAX {
        memory.insert(key.to_owned(), (Instant::now(), answer));
    }
}

#[cfg(test)]
mod tests;
