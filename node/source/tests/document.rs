//! Manifests from a real HTTP server.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::Duration;

use swiftlet_model::sources::{Source, SourcePods};
use swiftlet_source::{DocumentOptions, follow_document};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What a test waits for an answer.
const LIMIT: Duration = Duration::from_secs(10);

const LIST: &str = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
    {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}]}"#;
const SINGLE: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]}}"#;

/// Gives these answers one after another; answers the heads of the requests.
async fn serve(
    listener: TcpListener,
    answers: Vec<(u16, &'static str)>,
    requests: mpsc::UnboundedSender<String>,
) {
    for (status, body) in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        requests.send(String::from_utf8(head).unwrap()).unwrap();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
}

async fn names(lists: &mut mpsc::Receiver<SourcePods>) -> Vec<String> {
    let list = tokio::time::timeout(LIMIT, lists.recv()).await;
    let list = list.unwrap().unwrap();
    assert_eq!(list.source, Source::Http);
    let names = list
        .pods
        .iter()
        .map(|pod| pod.metadata.name.clone().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_document_is_followed_and_a_server_that_fails_takes_no_pod_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pods", listener.local_addr().unwrap());
    let (sender, mut lists) = mpsc::channel(4);
    let (heads, mut requests) = mpsc::unbounded_channel();
    let answers = vec![
        (200, LIST),
        (200, LIST),
        (500, ""),
        (200, ""),
        (200, SINGLE),
    ];
    tokio::spawn(serve(listener, answers, heads));
    let shutdown = CancellationToken::new();
    let options = DocumentOptions {
        url,
        headers: vec![("X-Node".into(), "n1".into())],
        node_name: "n1".into(),
        check_period: Duration::from_millis(5),
    };
    tokio::spawn(follow_document(options, sender, shutdown.clone()));
    assert_eq!(names(&mut lists).await, ["a-n1", "b-n1"]);
    // The same document, an error and an empty one between make no list.
    assert_eq!(names(&mut lists).await, ["a-n1"]);
    let head = requests.recv().await.unwrap();
    assert!(head.starts_with("GET /pods HTTP/1.1"), "{head}");
    assert!(head.to_lowercase().contains("x-node: n1"), "{head}");
    shutdown.cancel();
}
