//! Probes against real servers on this machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use swiftlet_model::probes::{HttpProbe, HttpScheme, ProbeAnswer, Probes};
use swiftlet_probe::NetworkProbes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Enough for an answer on this machine.
const LIMIT: Duration = Duration::from_secs(10);
/// What is never answered is waited for this long.
const SHORT: Duration = Duration::from_millis(200);

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads the head of a request.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Answers one request as `answer` says, with the request's head given.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: impl Fn(&str) -> String) {
    let head = head(&mut stream).await;
    let text = answer(&head);
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// A server in the clear that answers each request as `answer` says.
async fn http_server(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, &answer).await;
        }
    });
    address
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

fn request(address: SocketAddr, path: &str) -> HttpProbe {
    HttpProbe {
        scheme: HttpScheme::Http,
        host: address.ip().to_string(),
        port: address.port(),
        path: path.to_owned(),
        headers: Vec::new(),
    }
}

fn failure(answer: &ProbeAnswer) -> &str {
    match answer {
        ProbeAnswer::Failure(said) => said,
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn a_status_below_400_is_success_and_others_are_not() {
    let address = http_server(|head| {
        let code = head.split(['/', ' ']).nth(2).unwrap();
        reply(&format!("{code} x"), "", "body")
    })
    .await;
    let probes = NetworkProbes::new();
    for (code, expected) in [
        ("200", ProbeAnswer::Success("body".into())),
        ("299", ProbeAnswer::Success("body".into())),
        (
            "399",
            ProbeAnswer::Warning("Probe terminated redirects, Response body: body".into()),
        ),
        (
            "400",
            ProbeAnswer::Failure("HTTP probe failed with statuscode: 400".into()),
        ),
        (
            "503",
            ProbeAnswer::Failure("HTTP probe failed with statuscode: 503".into()),
        ),
    ] {
        let answer = probes
            .http_get(&request(address, &format!("/{code}")), LIMIT)
            .await;
        assert_eq!(answer, expected);
    }
    let hook = probes.http_hook(&request(address, "/503"), LIMIT).await;
    assert_eq!(hook, Ok(503));
}

#[tokio::test]
async fn headers_have_kubelets_defaults_and_an_empty_one_takes_them_away() {
    let address = http_server(|head| reply("200 OK", "", head)).await;
    let probes = NetworkProbes::new();
    let mut wanted = request(address, "healthz?deep=1");
    let ProbeAnswer::Success(seen) = probes.http_get(&wanted, LIMIT).await else {
        panic!("no success");
    };
    let seen = seen.to_lowercase();
    assert!(
        seen.starts_with("get /healthz?deep=1 http/1.1\r\n"),
        "{seen}"
    );
    for line in [
        format!("host: {address}"),
        "user-agent: kube-probe/1.34".into(),
        "accept: */*".into(),
        "connection: close".into(),
    ] {
        assert!(
            seen.contains(&format!("\r\n{line}\r\n")),
            "{line} in {seen}"
        );
    }
    wanted.headers = [
        ("Host", "example.org"),
        ("Accept", ""),
        ("X-One", "1"),
        ("X-One", "2"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let ProbeAnswer::Success(seen) = probes.http_get(&wanted, LIMIT).await else {
        panic!("no success");
    };
    let seen = seen.to_lowercase();
    assert!(seen.contains("\r\nhost: example.org\r\n"), "{seen}");
    assert!(seen.contains("x-one: 1\r\nx-one: 2\r\n"), "{seen}");
    assert!(!seen.contains("accept:"), "{seen}");
    wanted.headers = vec![("bad header".into(), String::new())];
    failure(&probes.http_get(&wanted, LIMIT).await);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_alone() {
    let address = http_server(|head| match head.split(' ').nth(1).unwrap() {
        "/here" => reply("302 Found", "Location: /there\r\n", ""),
        "/there" => reply("200 OK", "", "arrived"),
        "/away" => reply("302 Found", "Location: http://example.org/\r\n", "left"),
        _ => reply("302 Found", "Location: /again\r\n", ""),
    })
    .await;
    let probes = NetworkProbes::new();
    let get = async |path| probes.http_get(&request(address, path), LIMIT).await;
    assert_eq!(get("/here").await, ProbeAnswer::Success("arrived".into()));
    let left = "Probe terminated redirects, Response body: left".into();
    assert_eq!(get("/away").await, ProbeAnswer::Warning(left));
    let endless = get("/again").await;
    assert!(failure(&endless).ends_with("stopped after 10 redirects"));
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let address = http_server(|_| reply("200 OK", "", &"x".repeat(20_000))).await;
    let answer = NetworkProbes::new()
        .http_get(&request(address, "/"), LIMIT)
        .await;
    assert_eq!(answer, ProbeAnswer::Success("x".repeat(10 << 10)));
}

#[tokio::test]
async fn https_is_spoken_to_a_certificate_that_nobody_signed() {
    let made = rcgen::generate_simple_self_signed(vec!["somebody.else".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        serve(stream, |_| reply("200 OK", "", "secret")).await;
    });
    let mut wanted = request(address, "/");
    wanted.scheme = HttpScheme::Https;
    let answer = NetworkProbes::new().http_get(&wanted, LIMIT).await;
    assert_eq!(answer, ProbeAnswer::Success("secret".into()));
}

#[tokio::test]
async fn a_server_in_the_clear_fails_an_https_probe_but_not_an_https_hook() {
    let probes = NetworkProbes::new();
    let (listener, clear) = listener().await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut first = [0_u8; 1];
            stream.read_exact(&mut first).await.unwrap();
            let text = match first[0] {
                b'G' => reply("204 No Content", "", ""),
                _ => reply("400 Bad Request", "", ""),
            };
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    let mut wanted = request(clear, "/");
    wanted.scheme = HttpScheme::Https;
    let answer = probes.http_get(&wanted, LIMIT).await;
    assert!(failure(&answer).contains("server gave HTTP response to HTTPS client"));
    assert_eq!(probes.http_hook(&wanted, LIMIT).await, Ok(204));
}

#[tokio::test]
async fn nobody_there_and_nobody_answering_are_failures_with_words() {
    let (silent, address) = listener().await;
    let probes = NetworkProbes::new();
    let answer = probes.http_get(&request(address, "/x"), SHORT).await;
    let expected = format!("Get \"http://{address}/x\": context deadline exceeded");
    assert_eq!(failure(&answer), expected);
    let tcp = probes.tcp("127.0.0.1", address.port(), LIMIT).await;
    assert_eq!(tcp, ProbeAnswer::Success(String::new()));
    let grpc = probes.grpc("127.0.0.1", address.port(), "", SHORT).await;
    assert!(failure(&grpc).starts_with("timeout: "), "{grpc:?}");
    drop(silent);
    let refused = format!("dial tcp {address}: connect: connection refused");
    let tcp = probes.tcp("127.0.0.1", address.port(), LIMIT).await;
    assert_eq!(failure(&tcp), refused);
    let answer = probes.http_get(&request(address, "/x"), LIMIT).await;
    assert_eq!(
        failure(&answer),
        format!("Get \"http://{address}/x\": {refused}")
    );
    let grpc = probes.grpc("127.0.0.1", address.port(), "", LIMIT).await;
    assert!(
        failure(&grpc).starts_with("error: failed to connect service"),
        "{grpc:?}"
    );
}
