//! Sandboxes: run, stop, remove, status.

use k8s_cri::v1::{
    PodSandboxStatusRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StopPodSandboxRequest,
};
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::SandboxId;
use swiftlet_model::runtime::{RuntimeError, SandboxConfig, SandboxState, SandboxStatus};

use crate::client::{Call, Client, missing_is_done};
use crate::{convert, pods};

/// Runs the pod's sandbox. If an earlier call, whose answer was lost, already made it, that one is
/// the answer: the runtime reserves a name of (name, namespace, uid, attempt), so it is the same.
pub(crate) async fn run(
    client: &Client,
    config: &SandboxConfig,
    deadline: Deadline,
) -> Result<SandboxId, RuntimeError> {
    let call = Call::within("RunPodSandbox", deadline.remaining());
    let request = RunPodSandboxRequest {
        config: Some(convert::sandbox::config(config)),
        runtime_handler: config.runtime_handler.clone(),
    };
    let mut service = client.runtime();
    match client
        .send(call, request, |request| service.run_pod_sandbox(request))
        .await
    {
        Ok(answer) => Ok(SandboxId::from(answer.pod_sandbox_id)),
        Err(refusal @ RuntimeError::AlreadyExists { .. }) => adopt(client, config, refusal).await,
        Err(error) => Err(error),
    }
}

/// The ready sandbox of the same pod and attempt, or else the runtime's refusal. A sandbox that is
/// there and not ready is not adopted: the pod then needs its next attempt.
async fn adopt(
    client: &Client,
    config: &SandboxConfig,
    refusal: RuntimeError,
) -> Result<SandboxId, RuntimeError> {
    let found = pods::sandboxes(client, Some(&config.pod.uid)).await?;
    found
        .into_iter()
        .map(|sandbox| convert::status::sandbox_of_list(&sandbox))
        .find(|it| it.attempt == config.attempt && it.state == SandboxState::Ready)
        .map(|sandbox| sandbox.id)
        .ok_or(refusal)
}

pub(crate) async fn stop(client: &Client, id: &SandboxId) -> Result<(), RuntimeError> {
    let request = StopPodSandboxRequest {
        pod_sandbox_id: id.to_string(),
    };
    let mut service = client.runtime();
    let answer = client
        .send(Call::change("StopPodSandbox"), request, |request| {
            service.stop_pod_sandbox(request)
        })
        .await;
    missing_is_done(answer.map(drop))
}

pub(crate) async fn remove(client: &Client, id: &SandboxId) -> Result<(), RuntimeError> {
    let call = Call::change("RemovePodSandbox");
    let request = RemovePodSandboxRequest {
        pod_sandbox_id: id.to_string(),
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.remove_pod_sandbox(request))
        .await;
    missing_is_done(answer.map(drop))
}

pub(crate) async fn status(client: &Client, id: &SandboxId) -> Result<SandboxStatus, RuntimeError> {
    status_within(client, Call::read("PodSandboxStatus"), id).await
}

/// The same, with a limit of the caller's.
pub(crate) async fn status_within(
    client: &Client,
    call: Call,
    id: &SandboxId,
) -> Result<SandboxStatus, RuntimeError> {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: id.to_string(),
        verbose: false,
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.pod_sandbox_status(request))
        .await?;
    let status = answer.status.ok_or_else(|| RuntimeError::NotFound {
        call: call.name,
        message: format!("the runtime answered no status for sandbox {id}"),
    })?;
    Ok(convert::status::sandbox(&status))
}
