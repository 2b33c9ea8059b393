//! gRPC probes: `grpc.health.v1.Health/Check`. Rules: `pkg/probe/grpc` of Kubernetes.

use std::time::Duration;

use http::uri::PathAndQuery;
use swiftlet_model::probes::ProbeAnswer;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::KUBERNETES_VERSION;

/// The method of the health protocol.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// `grpc.health.v1.HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl ServingStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// Asks `service` at `address`.
pub(crate) async fn check(address: String, service: &str, limit: Duration) -> ProbeAnswer {
    let end = tokio::time::Instant::now() + limit;
    let channel = match tokio::time::timeout_at(end, open(&address)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(said)) => {
            let text = format!("error: failed to connect service at \"{address}\": {said}");
            return ProbeAnswer::Failure(text);
        }
        Err(_) => {
            let text = format!("timeout: failed to connect service \"{address}\" within {limit:?}");
            return ProbeAnswer::Failure(text);
        }
    };
    match tokio::time::timeout_at(end, ask(channel, service)).await {
        Ok(Ok(ServingStatus::Serving)) => ProbeAnswer::Success("service healthy".to_owned()),
        Ok(Ok(status)) => {
            let text = format!("service unhealthy (responded with \"{}\")", status.word());
            ProbeAnswer::Failure(text)
        }
        Ok(Err(status)) => ProbeAnswer::Failure(refusal(&status)),
        Err(_) => {
            let text = format!("timeout: health rpc did not complete within {limit:?}");
            ProbeAnswer::Failure(text)
        }
    }
}

async fn open(address: &str) -> Result<Channel, String> {
    let agent = format!("kube-probe/{KUBERNETES_VERSION}");
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(agent))
        .map_err(|error| chain(&error))?;
    endpoint.connect().await.map_err(|error| chain(&error))
}

async fn ask(channel: Channel, service: &str) -> Result<ServingStatus, Status> {
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(chain(&error)))?;
    let request = Request::new(HealthCheckRequest {
        service: service.to_owned(),
    });
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let path = PathAndQuery::from_static(CHECK);
    let answer = client.unary(request, path, codec).await?;
    Ok(answer.into_inner().status())
}

fn refusal(status: &Status) -> String {
    let message = status.message();
    if status.code() == Code::Unimplemented {
        return format!(
            "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): {message}"
        );
    }
    let code = status.code();
    format!("error: health rpc probe failed: rpc error: code = {code:?} desc = {message}")
}

/// The last cause tells most.
fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
