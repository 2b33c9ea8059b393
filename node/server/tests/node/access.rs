//! Who gets in.

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{PATIENCE, connect, request, send, text, upgrade};
use crate::stand::Stand;

const PATHS: [&str; 9] = [
    "/healthz",
    "/pods",
    "/runningpods/",
    "/containerLogs/default/web/main",
    "/exec/default/web/main?command=id&output=1",
    "/attach/default/web/main?output=1",
    "/portForward/default/web",
    "/metrics",
    "/nothing",
];

#[tokio::test]
async fn who_may_not_is_refused_on_every_path() {
    let stand = Stand::new().await;
    for path in PATHS {
        for (client, code) in [
            (None, StatusCode::UNAUTHORIZED),
            (Some(stand.authority.client("dev")), StatusCode::FORBIDDEN),
            (
                Some(stand.authority.client("system:nodes")),
                StatusCode::FORBIDDEN,
            ),
        ] {
            let answer = send(stand.address, client, upgrade(path)).await;
            assert_eq!(answer.status(), code, "{path}");
        }
    }
    stand.stop().await;
}

#[tokio::test]
async fn administrators_see_pods_and_what_is_not_served_says_so() {
    let stand = Stand::new().await;
    let get = async |path| {
        let client = Some(stand.authority.master());
        let answer = send(stand.address, client, request(Method::GET, path)).await;
        (answer.status(), text(answer).await)
    };
    assert_eq!(get("/healthz").await, (StatusCode::OK, "ok".to_owned()));
    let (code, pods) = get("/pods").await;
    let pods: Value = serde_json::from_str(&pods).unwrap();
    assert_eq!((code, &pods["kind"]), (StatusCode::OK, &"PodList".into()));
    assert_eq!(pods["items"][0]["status"]["phase"], "Running");
    let running: Value = serde_json::from_str(&get("/runningpods/").await.1).unwrap();
    assert_eq!(running["items"][0]["metadata"]["name"], "web");
    let (code, status) = get("/stats/summary").await;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (code, &status["kind"]),
        (StatusCode::NOT_IMPLEMENTED, &"Status".into())
    );
    assert_eq!(get("/nothing").await.0, StatusCode::NOT_FOUND);
    stand.stop().await;
}

#[tokio::test]
async fn strange_clients_do_no_harm() {
    let stand = Stand::new().await;
    let mut plain = TcpStream::connect(stand.address).await.unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(stand.address).await.unwrap());
    }
    let mut large = connect(stand.address, Some(stand.authority.master())).await;
    large
        .write_all(b"GET /healthz HTTP/1.1\r\nX: ")
        .await
        .unwrap();
    // The server may close before all of it has been sent.
    let _ = large.write_all(&vec![b'x'; 1 << 20]).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, large.read_to_end(&mut answer));
    let _ = read.await.expect("the server does not wait for more");
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    let half = upgrade("/exec/default/web/main?command=id&output=1");
    let answer = send(stand.address, Some(stand.authority.master()), half).await;
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    drop(answer);
    let client = Some(stand.authority.master());
    let answer = send(stand.address, client, request(Method::GET, "/healthz")).await;
    assert_eq!(answer.status(), StatusCode::OK);
    drop((plain, silent));
    stand.stop().await;
}
