//! Requests and responses: from HTTP to a verb and back.

mod body;
mod resource;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use swiftlet_client::api::{ApiError, UserInfo};

use crate::api::ApiServer;
use crate::authn;
use crate::authz;
use crate::discovery;
use crate::error;
use crate::negotiate::{self, Accepted, Encoding, Form};
use crate::node_proxy;
use crate::openapi::Documents;
use crate::present;
use crate::route::{self, Route};
use crate::strategy;
use crate::token;

pub(crate) use body::{BoxError, ResponseBody, full};

/// Answers requests for one API server.
#[derive(Clone)]
pub(crate) struct HttpSide {
    pub(crate) api: ApiServer,
    documents: Arc<Documents>,
    /// `/openapi/v2` for clients that read nothing else.
    protobuf_document: Bytes,
}

/// The media type of that document; clients ask with `@` before the version, too.
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

impl HttpSide {
    pub(crate) fn new(api: ApiServer) -> Self {
        let documents = Documents::new(strategy::registry(), discovery::VERSION);
        let protobuf_document =
            discovery::openapi_protobuf::document(strategy::registry(), discovery::VERSION);
        Self {
            api,
            documents: Arc::new(documents),
            protobuf_document,
        }
    }

    /// Answers one request. Every failure is a `metav1.Status`.
    pub(crate) async fn answer(
        &self,
        user: Option<UserInfo>,
        request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        let head = request.method() == Method::HEAD;
        let answered = match self.routed(user, request).await {
            Ok(response) => response,
            Err(error) => status(&error),
        };
        if head {
            answered.map(|_| full(Bytes::new()))
        } else {
            answered
        }
    }

    async fn routed(
        &self,
        user: Option<UserInfo>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let path = request.uri().path();
        if is_public(path) {
            return self.path(&route::route(path)?, &request);
        }
        // Who is unknown is not told what exists.
        let user = user.ok_or_else(error::unauthorized)?;
        match route::route(path)? {
            Route::Resource(target) if node_proxy::is_connected(target.subresource) => {
                node_proxy::answer(&self.api, &user, &target, request).await
            }
            Route::Resource(target) => resource::answer(&self.api, &user, target, request).await,
            route => {
                authz::authorize_path(&user, path)?;
                self.path(&route, &request)
            }
        }
    }

    /// Paths that are no resource.
    fn path(
        &self,
        route: &Route,
        request: &Request<Incoming>,
    ) -> Result<Response<ResponseBody>, ApiError> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(error::method_not_allowed());
        }
        if let Route::Health(path) = route {
            let verbose = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("verbose"));
            return Ok(health(path, verbose));
        }
        if matches!(route, Route::OpenApiV2) && accepts_protobuf_document(request) {
            return Ok(with_type(
                StatusCode::OK,
                OPENAPI_PROTOBUF,
                self.protobuf_document.clone(),
            ));
        }
        let accepted = negotiate::accept(request.headers())?;
        match route {
            Route::OpenApiV2 | Route::OpenApiV3 | Route::OpenApiV3Group => {
                let document = self.documents.get(request.uri().path());
                let document = document.cloned().ok_or_else(error::unknown_path)?;
                Ok(with_type(StatusCode::OK, "application/json", document))
            }
            Route::LegacyVersions => Ok(discovered(accepted, true, discovery::legacy_versions)),
            Route::Groups => Ok(discovered(accepted, false, discovery::group_list)),
            Route::Group(group) => Ok(value(accepted, &discovery::group(group)?)),
            Route::Version(group, version) => {
                Ok(value(accepted, &discovery::resource_list(group, version)))
            }
            Route::ServerVersion => Ok(value(accepted, &discovery::version())),
            Route::CustomResourceDefinitions => {
                Ok(value(accepted, &discovery::no_custom_resources()))
            }
            Route::OpenIdConfiguration => Ok(value(accepted, &token::openid_configuration())),
            Route::OpenIdKeys => self.keys(),
            Route::Root => Ok(value(accepted, &discovery::root())),
            Route::Health(_) | Route::Resource(_) => Err(error::unknown_path()),
        }
    }
}

impl HttpSide {
    /// The keys with which tokens can be verified.
    fn keys(&self) -> Result<Response<ResponseBody>, ApiError> {
        let key = self.api.signing_key().ok_or_else(error::unknown_path)?;
        let body = present::encoded(&token::key_set(key), Encoding::Json, false);
        Ok(with_type(StatusCode::OK, KEY_SET, body))
    }

    /// Who bears the token of a request that came without a certificate.
    pub(crate) fn user_of_token(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let text = authn::bearer_token(headers)?;
        let (key, snapshot) = (self.api.signing_key()?, self.api.snapshot());
        let now = jiff::Timestamp::now();
        match token::user_of_token(key, &snapshot, text, &[token::ISSUER], now) {
            Ok(bearer) => Some(bearer.user),
            Err(why) => {
                tracing::debug!(%why, "a bearer token was refused");
                None
            }
        }
    }
}

/// The media type of the keys (RFC 7517).
const KEY_SET: &str = "application/jwk-set+json";

/// Paths that need no identity: load balancers and probes have none.
fn is_public(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    matches!(first, "healthz" | "livez" | "readyz") || path == "/version"
}

fn accepts_protobuf_document(request: &Request<Incoming>) -> bool {
    let accept = request.headers().get(http::header::ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    accept.starts_with("application/com.github.proto-openapi.spec.v2")
}

fn health(path: &str, verbose: bool) -> Response<ResponseBody> {
    let text = if verbose {
        format!(
            "[+]ping ok\n[+]store ok\n{} check passed\n",
            path.trim_matches('/')
        )
    } else {
        "ok".into()
    };
    with_type(StatusCode::OK, "text/plain; charset=utf-8", text.into())
}

fn discovered(accepted: Accepted, legacy: bool, plain: fn() -> Value) -> Response<ResponseBody> {
    let Form::Discovery(version) = accepted.form else {
        return value(accepted, &plain());
    };
    let body = present::encoded(
        &discovery::aggregated(legacy, version),
        Encoding::Json,
        false,
    );
    let content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    with_type(StatusCode::OK, &content_type, body)
}

fn value(accepted: Accepted, value: &Value) -> Response<ResponseBody> {
    let body = present::encoded(value, accepted.encoding, false);
    with_type(StatusCode::OK, media_type(accepted.encoding), body)
}

pub(crate) fn media_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Json | Encoding::Protobuf => "application/json",
        Encoding::Yaml => "application/yaml",
    }
}

/// A response with a whole body.
pub(crate) fn with_type(
    code: StatusCode,
    content_type: &str,
    body: Bytes,
) -> Response<ResponseBody> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A refusal.
pub(crate) fn status(error: &ApiError) -> Response<ResponseBody> {
    let code = u16::try_from(error.code())
        .ok()
        .and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(&error.0).unwrap_or_default();
    let mut response = with_type(code, "application/json", body.into());
    let retry_s = error
        .0
        .details
        .as_ref()
        .and_then(|details| details.retry_after_seconds);
    if let Some(retry_s) = retry_s {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, HeaderValue::from(retry_s));
    }
    if code == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(""));
    }
    response
}
