//! Streams into pods: bytes and nothing but bytes.

use http::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use swiftlet_model::streaming::Streams;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{PATIENCE, connect, request, send, text, upgrade};
use crate::stand::Stand;

const EXEC: &str = "/exec/default/web/main?command=sh&command=-c&input=1&output=1&error=1";

#[tokio::test]
async fn ten_megabytes_pass_both_ways() {
    let stand = Stand::new().await;
    let client = Some(stand.authority.master());
    let mut answer = send(stand.address, client, upgrade(EXEC)).await;
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(
        answer.headers()["X-Stream-Protocol-Version"],
        "v4.channel.k8s.io"
    );
    let stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0u8..251).cycle().take(10 << 20).collect();
    let expected = sent.clone();
    let send = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.flush().await.unwrap();
        to
    });
    let mut got = vec![0; expected.len()];
    let read = tokio::time::timeout(PATIENCE, from.read_exact(&mut got));
    read.await.expect("all comes back").unwrap();
    assert!(got == expected);
    drop(send.await.unwrap());
    let asked = stand.runtime.asked.lock().unwrap().clone();
    let streams = Streams {
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    assert_eq!(asked, [(vec!["sh".to_owned(), "-c".to_owned()], streams)]);
    stand.stop().await;
}

#[tokio::test]
async fn what_cannot_be_joined_is_refused_with_a_reason() {
    let mut stand = Stand::new().await;
    let plain = request(Method::POST, EXEC);
    let answer = send(stand.address, Some(stand.authority.master()), plain).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(text(answer).await, "Upgrade request required");
    stand.post(&json!({"waiting": {"reason": "CrashLoopBackOff"}}));
    for (path, words) in [
        (EXEC, "container not found (\"main\")"),
        (
            "/exec/default/gone/main?command=x&output=1",
            "pod does not exist",
        ),
        (
            "/attach/default/web/main",
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        ("/portForward/default/web/another-uid", "pod does not exist"),
    ] {
        let client = Some(stand.authority.master());
        let answer = send(stand.address, client, upgrade(path)).await;
        assert!(answer.status().as_u16() >= 400);
        assert_eq!(text(answer).await, words);
    }
    stand.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_the_server_and_with_its_client() {
    let stand = Stand::new().await;
    let path = "/portForward/default/web";
    // Clients that go away without a word.
    for _ in 0..40 {
        let client = Some(stand.authority.master());
        let mut answer = send(stand.address, client, upgrade(path)).await;
        assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
        drop(hyper::upgrade::on(&mut answer).await.unwrap());
    }
    let client = Some(stand.authority.master());
    let mut answer = send(stand.address, client, upgrade(path)).await;
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
    stand.stop().await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // With or without a farewell of TLS.
    drop(ended.expect("the stream ends"));
    assert!(rest.is_empty());
}

#[tokio::test]
async fn what_follows_the_head_at_once_belongs_to_the_stream_and_is_no_request() {
    let stand = Stand::new().await;
    let mut stream = connect(stand.address, Some(stand.authority.master())).await;
    let hidden = "GET /pods HTTP/1.1\r\nHost: node\r\n\r\n";
    let head = format!(
        "POST {EXEC} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n\
         {hidden}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(hidden.as_bytes()) {
        let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await;
        got.push(read.expect("it comes back").unwrap());
    }
    let got = String::from_utf8(got).unwrap();
    assert!(got.starts_with("HTTP/1.1 101 "), "{got}");
    assert_eq!(got.matches("HTTP/1.1").count(), 2, "{got}");
    drop(stream);
    stand.stop().await;
}
