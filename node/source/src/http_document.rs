//! Manifests in a document that a server has: one pod, or a list of pods.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use swiftlet_model::sources::{Source, SourcePods};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::ManifestError;
use crate::manifest::{Origin, static_pods};
use crate::unique::unique;

/// How often the document is fetched (kubelet's `httpCheckFrequency`).
pub const HTTP_CHECK_PERIOD: Duration = Duration::from_secs(20);
/// How long the server may take (`pkg/kubelet/config/http.go`).
const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// Largest document (`maxConfigLength` in `pkg/kubelet/config/common.go`).
const DOCUMENT_BYTES_MAX: usize = 10 << 20;

/// Where the document is.
#[derive(Clone, Debug)]
pub struct DocumentOptions {
    /// `http` or `https`; servers are trusted by the system's roots.
    pub url: String,
    /// Headers to send.
    pub headers: Vec<(String, String)>,
    /// The node's name.
    pub node_name: String,
    /// How often it is fetched.
    pub check_period: Duration,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

struct Document {
    options: DocumentOptions,
    client: HttpClient,
    /// What the server said last.
    last: Option<Bytes>,
}

/// Fetches the document again and again, until `shutdown`. While the server does not answer, the
/// pods stay as they were.
pub async fn follow_document(
    options: DocumentOptions,
    lists: mpsc::Sender<SourcePods>,
    shutdown: CancellationToken,
) {
    let client = match client() {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "the system's certificates cannot be used: no HTTP source");
            return;
        }
    };
    let document = Document {
        options,
        client,
        last: None,
    };
    shutdown
        .run_until_cancelled_owned(document.follow(lists))
        .await;
}

fn client() -> std::io::Result<HttpClient> {
    let builder = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls_provider())?
        .https_or_http()
        .enable_http1();
    Ok(Client::builder(TokioExecutor::new()).build(builder.build()))
}

fn rustls_provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::ring::default_provider()
}

impl Document {
    async fn follow(mut self, lists: mpsc::Sender<SourcePods>) {
        let mut failures = 0_u32;
        loop {
            match self.look().await {
                Ok(Some(list)) => {
                    failures = 0;
                    if lists.send(list).await.is_err() {
                        return;
                    }
                }
                Ok(None) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let url = &self.options.url;
                    // The first ones are told; a server that is down for a day fills no log.
                    if failures <= 3 || failures.is_power_of_two() {
                        tracing::warn!(url, %error, failures, "pods of the URL stay as they are");
                    }
                }
            }
            tokio::time::sleep(self.options.check_period).await;
        }
    }

    /// The list, if the document has changed.
    async fn look(&mut self) -> Result<Option<SourcePods>, ManifestError> {
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.fetch()).await;
        let timeout = |_| ManifestError::Fetch("the server does not answer in time".to_owned());
        let text = fetched.map_err(timeout)??;
        if self.last.as_ref() == Some(&text) {
            return Ok(None);
        }
        let origin = Origin {
            source: Source::Http,
            place: self.options.url.clone(),
            node_name: self.options.node_name.clone(),
        };
        let pods = static_pods(&text, &origin, Timestamp::now())?;
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        self.last = Some(text);
        Ok(Some(SourcePods {
            source: Source::Http,
            pods: unique(pods.iter().map(|pod| (self.options.url.clone(), pod))),
        }))
    }

    async fn fetch(&self) -> Result<Bytes, ManifestError> {
        let failed = |error: &dyn std::error::Error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            ManifestError::Fetch(format!("{error}{}", cause.unwrap_or_default()))
        };
        let uri: Uri = self.options.url.parse().map_err(|error| failed(&error))?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        *request.headers_mut() = headers(&self.options.headers)?;
        let answer = self
            .client
            .request(request)
            .await
            .map_err(|error| failed(&error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(ManifestError::Fetch(format!(
                "the server answered {status}"
            )));
        }
        let body = Limited::new(answer.into_body(), DOCUMENT_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| ManifestError::Fetch(error.to_string()))?;
        Ok(body.to_bytes())
    }
}

fn headers(all: &[(String, String)]) -> Result<HeaderMap, ManifestError> {
    let mut map = HeaderMap::new();
    for (name, value) in all {
        let bad = || ManifestError::Fetch(format!("header \"{name}\" cannot be sent"));
        let key: HeaderName = name.parse().map_err(|_| bad())?;
        let value: HeaderValue = value.parse().map_err(|_| bad())?;
        map.append(key, value);
    }
    Ok(map)
}
