//! Logs as clients get them.

use std::fs;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use swiftlet_model::runtime::ContainerState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{PATIENCE, connect, request, send, text};
use crate::stand::Stand;

const LOG: &str = "/containerLogs/default/web/main";

async fn get(stand: &Stand, path: &str) -> http::Response<Incoming> {
    let client = Some(stand.authority.master());
    send(stand.address, client, request(Method::GET, path)).await
}

/// The next piece of a body as text.
async fn piece(body: &mut Incoming) -> String {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
    let frame = frame
        .expect("something is written")
        .expect("it goes on")
        .unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_log_is_read_and_what_is_wrong_is_said() {
    let mut stand = Stand::new().await;
    let mut log = stand.writer();
    log.line("one");
    log.line("two");
    assert_eq!(text(get(&stand, LOG).await).await, "one\ntwo\n");
    let last = get(&stand, &format!("{LOG}?tailLines=1&timestamps=true")).await;
    assert_eq!(text(last).await, "2024-01-02T03:04:05.000000000Z two\n");
    for (path, code, words) in [
        (
            "/containerLogs/default/gone/main",
            404,
            "pod \"gone\" does not exist",
        ),
        (
            "/containerLogs/default/web/other",
            404,
            "container \"other\" not found in pod \"web\"",
        ),
        (
            "/containerLogs/default/web/main?previous=true",
            400,
            "previous terminated container \"main\" in pod \"web\" not found",
        ),
        (
            "/containerLogs/default/web/main?limitBytes=0",
            422,
            "limitBytes: Invalid value: 0: must be greater than 0",
        ),
    ] {
        let answer = get(&stand, path).await;
        assert_eq!(answer.status().as_u16(), code, "{path}");
        assert_eq!(text(answer).await, words);
    }
    stand.post(&json!({"waiting": {"reason": "ContainerCreating"}}));
    let answer = get(&stand, LOG).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert!(
        text(answer)
            .await
            .ends_with("is waiting to start: ContainerCreating")
    );
    stand.stop().await;
}

#[tokio::test]
async fn following_goes_through_rotations_and_ends_with_the_container() {
    let stand = Stand::new().await;
    let mut log = stand.writer();
    log.line("one");
    let mut body = get(&stand, &format!("{LOG}?follow=true")).await.into_body();
    assert_eq!(piece(&mut body).await, "one\n");
    log.line("two");
    assert_eq!(piece(&mut body).await, "two\n");
    // The runtime opens the new file, writes to the old one once more, and closes it.
    let rotated = stand.log().with_file_name("0.log.20240102-030405");
    fs::rename(stand.log(), rotated).unwrap();
    let mut next = stand.writer();
    log.line("three");
    drop(log);
    next.line("four");
    let mut got = String::new();
    while !got.ends_with("four\n") {
        got += &piece(&mut body).await;
    }
    assert_eq!(got, "three\nfour\n");
    // It closes the log before it says that the container has ended.
    next.line("five");
    drop(next);
    assert_eq!(piece(&mut body).await, "five\n");
    stand.runtime.set(Some(ContainerState::Exited));
    let end = tokio::time::timeout(PATIENCE, body.frame()).await;
    assert!(end.expect("the body ends").is_none());
    stand.stop().await;
}

#[tokio::test]
async fn following_what_has_ended_ends_at_once() {
    let stand = Stand::new().await;
    stand.writer().line("one");
    for state in [Some(ContainerState::Exited), Some(ContainerState::Running)] {
        let ended = state == Some(ContainerState::Exited);
        stand.runtime.set(state);
        let path = if ended {
            format!("{LOG}?follow=true")
        } else {
            // Enough is enough, whatever runs on.
            format!("{LOG}?follow=true&limitBytes=4")
        };
        assert_eq!(text(get(&stand, &path).await).await, "one\n");
    }
    stand.stop().await;
}

#[tokio::test]
async fn a_log_that_is_a_link_is_not_read() {
    let stand = Stand::new().await;
    let elsewhere = stand.log().with_file_name("elsewhere");
    fs::write(&elsewhere, "2024-01-02T03:04:05Z stdout F secret\n").unwrap();
    std::os::unix::fs::symlink(&elsewhere, stand.log()).unwrap();
    let answer = get(&stand, LOG).await;
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!text(answer).await.contains("secret"));
    stand.stop().await;
}

#[tokio::test]
async fn a_log_is_not_asked_for_with_a_body() {
    let stand = Stand::new().await;
    let mut stream = connect(stand.address, Some(stand.authority.master())).await;
    let head = format!("GET {LOG}?follow=true HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer));
    read.await.expect("it is refused").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
    drop(stream);
    stand.stop().await;
}
