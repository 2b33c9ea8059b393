//! What nodes serve of their pods, by way of the API server.

use std::sync::Arc;

use http::{Method, StatusCode};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use swiftlet_api::pki::Identity;
use swiftlet_client::api::{ObjectName, resources};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::client::{Call, call, get, json_of, send, text};
use crate::support::{Outside, outside, pod, pod_name};

const LOG: &str = "/api/v1/namespaces/default/pods/web/log";

/// A node that answers every request alike and tells the heads of what it was asked.
struct Node {
    port: u16,
    asked: mpsc::UnboundedReceiver<String>,
}

impl Node {
    async fn start(identity: &Identity, answer: &'static str) -> Self {
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.unwrap()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                sender.send(String::from_utf8(head).unwrap()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        });
        Self { port, asked }
    }
}

/// A pod that is bound to a node of this name, which says that it is at this port.
async fn bound(server: &Outside, port: u16) {
    let node = json!({"metadata": {"name": "worker-1"}});
    server.inside.create(resources::NODES, node).await.unwrap();
    let name = ObjectName::status(resources::NODES, "", "worker-1");
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    server.inside.merge(&name, status).await.unwrap();
    server
        .inside
        .create(resources::PODS, pod("web"))
        .await
        .unwrap();
    server
        .inside
        .bind(&pod_name("web"), "worker-1")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_log_comes_from_the_pods_node() {
    let server = outside().await;
    let identity = server.pki.node("worker-1").unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\none\n";
    let mut node = Node::start(&identity, answer).await;
    bound(&server, node.port).await;
    let admin = server.pki.admin().unwrap();
    let path = format!("{LOG}?tailLines=1&timestamps=true&container=main");
    let answered = call(&server, Some(&admin), get(path)).await;
    assert_eq!(answered.status(), StatusCode::OK);
    assert_eq!(answered.headers()["content-type"], "text/plain");
    assert_eq!(text(answered).await, "one\n");
    let asked = node.asked.recv().await.unwrap();
    let expected = "GET /containerLogs/default/web/main?tailLines=1&timestamps=true HTTP/1.1\r\n";
    assert!(asked.starts_with(expected), "{asked}");
    server.stop().await;
}

#[tokio::test]
async fn a_nodes_refusal_is_told_as_a_status() {
    let server = outside().await;
    let identity = server.pki.node("worker-1").unwrap();
    let answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nnot ready";
    let node = Node::start(&identity, answer).await;
    bound(&server, node.port).await;
    let (code, status) = json_of(&server, get(LOG)).await;
    assert_eq!((code, &status["message"]), (400, &json!("not ready")));
    assert_eq!(status["reason"], "BadRequest");
    let (code, _) = json_of(&server, get("/api/v1/namespaces/default/pods/gone/log")).await;
    assert_eq!(code, 404);
    let (code, status) = json_of(&server, get(format!("{LOG}?limitBytes=0"))).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
    let exec = LOG.replace("/log", "/exec?command=id&stdout=true");
    let (code, status) = json_of(&server, send(Method::POST, exec, &json!({}))).await;
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("Upgrade request required"))
    );
    server.stop().await;
}

#[tokio::test]
async fn another_node_cannot_stand_in() {
    let server = outside().await;
    let other = server.pki.node("worker-2").unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfake";
    let node = Node::start(&other, answer).await;
    bound(&server, node.port).await;
    let (code, status) = json_of(&server, get(LOG)).await;
    assert_eq!(code, 500);
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("certificate"), "{message}");
    // Whoever says that it does not matter gets what is there.
    let admin = server.pki.admin().unwrap();
    let unverified = format!("{LOG}?insecureSkipTLSVerifyBackend=true");
    let answered = call(&server, Some(&admin), get(unverified)).await;
    assert_eq!(text(answered).await, "fake");
    server.stop().await;
}

#[tokio::test]
async fn who_may_not_is_refused_and_an_unbound_pod_has_written_nothing() {
    let server = outside().await;
    let pods = &server.inside;
    pods.create(resources::PODS, pod("web")).await.unwrap();
    let jane = server.pki.client("jane", "jane", &["dev"]).unwrap();
    let node = server.pki.node("worker-1").unwrap();
    for part in [
        "log",
        "exec?command=id&stdout=1",
        "attach?stdout=1",
        "portforward",
    ] {
        let path = LOG.replace("log", part);
        let unknown = call(&server, None, get(path.clone())).await;
        assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED, "{part}");
        for known in [&jane, &node] {
            let refused = call(&server, Some(known), get(path.clone())).await;
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{part}");
        }
    }
    let admin = server.pki.admin().unwrap();
    let answered = call(&server, Some(&admin), get(LOG)).await;
    assert_eq!(answered.status(), StatusCode::OK);
    assert_eq!(text(answered).await, "");
    server.stop().await;
}

#[tokio::test]
async fn a_node_may_ask_what_its_clients_may() {
    let server = outside().await;
    let node = server.pki.node("worker-1").unwrap();
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (groups, allowed) in [(json!(["system:masters"]), true), (json!(["dev"]), false)] {
        let attributes = json!({"verb": "get", "resource": "nodes", "subresource": "proxy"});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "jane", "groups": groups, "resourceAttributes": attributes},
        });
        let answered = call(&server, Some(&node), send(Method::POST, path, &review)).await;
        assert_eq!(answered.status(), StatusCode::CREATED);
        let answer: serde_json::Value = serde_json::from_str(&text(answered).await).unwrap();
        assert_eq!(answer["status"]["allowed"], allowed);
    }
    server.stop().await;
}

#[tokio::test]
async fn of_a_node_that_does_not_agree_to_a_stream_code_and_words_are_passed_on_and_no_more() {
    let exec = LOG.replace("/log", "/exec?command=id&stdout=true");
    for (answer, code, words) in [
        (
            "HTTP/1.1 404 Not Found\r\nLocation: https://elsewhere/\r\n\
             Content-Length: 4\r\n\r\ngone",
            StatusCode::NOT_FOUND,
            "gone",
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\n\
             Content-Length: 4\r\n\r\nfake",
            StatusCode::INTERNAL_SERVER_ERROR,
            "answered 302",
        ),
        (
            "HTTP/1.1 200 OK\r\nLocation: https://elsewhere/\r\n\
             Content-Length: 4\r\n\r\nfake",
            StatusCode::INTERNAL_SERVER_ERROR,
            "answered 200",
        ),
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nfoul",
            StatusCode::INTERNAL_SERVER_ERROR,
            "foul",
        ),
    ] {
        let server = outside().await;
        let identity = server.pki.node("worker-1").unwrap();
        let node = Node::start(&identity, answer).await;
        bound(&server, node.port).await;
        let asked = Call {
            upgrade: "SPDY/3.1",
            ..send(Method::POST, exec.clone(), &json!({}))
        };
        let admin = server.pki.admin().unwrap();
        let answered = call(&server, Some(&admin), asked).await;
        assert_eq!(answered.status(), code);
        assert!(!answered.headers().contains_key("location"));
        let told = text(answered).await;
        assert!(told.contains(words) && !told.contains("fake"), "{told}");
        server.stop().await;
    }
}
