//! Version and health of the runtime.

use k8s_cri::v1::{StatusRequest, VersionRequest};
use swiftlet_model::runtime::{RuntimeError, RuntimeStatus, RuntimeVersion};

use crate::client::{Call, Client};

/// The condition that says that containers can be run.
const RUNTIME_READY: &str = "RuntimeReady";
/// The condition that says that sandboxes can get a network.
const NETWORK_READY: &str = "NetworkReady";

pub(crate) async fn version(client: &Client) -> Result<RuntimeVersion, RuntimeError> {
    let request = VersionRequest {
        version: "0.1.0".to_owned(),
    };
    let mut service = client.runtime();
    let answer = client
        .send(Call::read("Version"), request, |request| {
            service.version(request)
        })
        .await?;
    Ok(RuntimeVersion {
        name: answer.runtime_name,
        version: answer.runtime_version,
        api_version: answer.runtime_api_version,
    })
}

pub(crate) async fn status(client: &Client) -> Result<RuntimeStatus, RuntimeError> {
    let request = StatusRequest { verbose: false };
    let mut service = client.runtime();
    let answer = client
        .send(Call::read("Status"), request, |request| {
            service.status(request)
        })
        .await?;
    let conditions = answer
        .status
        .map(|status| status.conditions)
        .unwrap_or_default();
    let is_true = |name: &str| conditions.iter().any(|c| c.r#type == name && c.status);
    let message = conditions
        .iter()
        .filter(|condition| !condition.status)
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
        .collect::<Vec<_>>()
        .join("; ");
    Ok(RuntimeStatus {
        runtime_ready: is_true(RUNTIME_READY),
        network_ready: is_true(NETWORK_READY),
        message,
    })
}

/// The runtime's own configuration as JSON, if it tells: containerd does, in its verbose status.
pub(crate) async fn configuration(client: &Client) -> Result<Option<String>, RuntimeError> {
    let request = StatusRequest { verbose: true };
    let mut service = client.runtime();
    let mut answer = client
        .send(Call::read("Status"), request, |request| {
            service.status(request)
        })
        .await?;
    Ok(answer.info.remove("config"))
}
