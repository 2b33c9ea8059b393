//! gRPC probes against a server of the health protocol.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use swiftlet_model::probes::{ProbeAnswer, Probes};
use swiftlet_probe::NetworkProbes;
use tokio::net::TcpListener;

/// Enough for an answer on this machine.
const LIMIT: Duration = Duration::from_secs(10);

/// `HealthCheckRequest`, as the other side reads it.
#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    service: String,
}

/// `HealthCheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    status: i32,
}

fn trailers(code: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    trailers
}

/// The whole server is well, `sick` is not, and others are unknown.
async fn answer(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let response = Response::builder().header("content-type", "application/grpc");
    if request.uri().path() != "/grpc.health.v1.Health/Check" {
        let frames = [Ok(Frame::trailers(trailers("12")))];
        let body = StreamBody::new(futures::stream::iter(frames));
        return Ok(response.body(BodyExt::boxed(body)).unwrap());
    }
    let agent = request
        .headers()
        .get("user-agent")
        .unwrap()
        .to_str()
        .unwrap();
    assert!(agent.starts_with("kube-probe/1.34"), "{agent}");
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let question = Question::decode(bytes.slice(5..)).unwrap();
    let status = match question.service.as_str() {
        "" => 1,
        "sick" => 2,
        _ => {
            let frames = [Ok(Frame::trailers(trailers("5")))];
            let body = StreamBody::new(futures::stream::iter(frames));
            return Ok(response.body(BodyExt::boxed(body)).unwrap());
        }
    };
    let message = Answer { status }.encode_to_vec();
    let mut data = BytesMut::new();
    data.put_u8(0);
    data.put_u32(u32::try_from(message.len()).unwrap());
    data.put_slice(&message);
    let body = Full::new(data.freeze());
    let body = body.with_trailers(async { Some(Ok(trailers("0"))) });
    Ok(response.body(BodyExt::boxed(body)).unwrap())
}

async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let builder = http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    });
    address
}

#[tokio::test]
async fn a_service_is_asked_by_its_name_and_only_serving_is_success() {
    let (address, probes) = (server().await, NetworkProbes::new());
    let ask = async |service| {
        probes
            .grpc("127.0.0.1", address.port(), service, LIMIT)
            .await
    };
    assert_eq!(
        ask("").await,
        ProbeAnswer::Success("service healthy".into())
    );
    let sick = "service unhealthy (responded with \"NOT_SERVING\")".into();
    assert_eq!(ask("sick").await, ProbeAnswer::Failure(sick));
    let ProbeAnswer::Failure(unknown) = ask("nobody").await else {
        panic!("no failure");
    };
    assert!(unknown.contains("NotFound"), "{unknown}");
}
