//! A small HTTPS client that shows everything.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use swiftlet_api::pki::Identity;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Outside, decoded};

/// A response whose body may still come.
pub(crate) type Response = http::Response<Incoming>;

/// A request in the making.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
    /// A bearer token; empty for none.
    pub(crate) token: String,
    /// What the connection is to become; empty for nothing else.
    pub(crate) upgrade: &'a str,
}

pub(crate) fn get<'a>(path: impl Into<String>) -> Call<'a> {
    Call {
        method: Method::GET,
        path: path.into(),
        accept: "application/json",
        content_type: "",
        body: Bytes::new(),
        token: String::new(),
        upgrade: "",
    }
}

pub(crate) fn send<'a>(method: Method, path: impl Into<String>, body: &Value) -> Call<'a> {
    let content_type = "application/json";
    Call {
        method,
        content_type,
        body: body.to_string().into(),
        ..get(path)
    }
}

/// A POST of an object in protobuf.
pub(crate) fn post_protobuf<'a>(path: impl Into<String>, body: Vec<u8>) -> Call<'a> {
    Call {
        method: Method::POST,
        content_type: "application/vnd.kubernetes.protobuf",
        body: body.into(),
        ..get(path)
    }
}

fn client(server: &Outside, identity: Option<&Identity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(server.pki.ca_pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Some(identity) = identity else {
        return builder.with_no_client_auth();
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
    builder
        .with_client_auth_cert(vec![certificate], key)
        .unwrap()
}

pub(crate) async fn call(
    server: &Outside,
    identity: Option<&Identity>,
    call: Call<'_>,
) -> Response {
    let connector = TlsConnector::from(Arc::new(client(server, identity)));
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = connector.connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(call.method)
        .uri(&call.path)
        .header(HOST, "localhost")
        .header(ACCEPT, call.accept);
    if !call.content_type.is_empty() {
        request = request.header(CONTENT_TYPE, call.content_type);
    }
    if !call.token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {}", call.token));
    }
    if !call.upgrade.is_empty() {
        request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, call.upgrade);
    }
    sender
        .send_request(request.body(Full::new(call.body)).unwrap())
        .await
        .unwrap()
}

/// The whole body of a response, as text.
pub(crate) async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Calls as the administrator and reads the whole answer.
pub(crate) async fn admin(server: &Outside, request: Call<'_>) -> (StatusCode, HeaderMap, Bytes) {
    let identity = server.pki.admin().unwrap();
    let response = call(server, Some(&identity), request).await;
    let (parts, body) = response.into_parts();
    (
        parts.status,
        parts.headers,
        body.collect().await.unwrap().to_bytes(),
    )
}

pub(crate) async fn json_of(server: &Outside, request: Call<'_>) -> (u16, Value) {
    let (code, _, body) = admin(server, request).await;
    (code.as_u16(), decoded(&body))
}
