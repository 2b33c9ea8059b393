//! Containers: create, start, stop, remove, status.

use std::time::Duration;

use futures::future::join;
use k8s_cri::v1::{
    ContainerFilter, ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest,
    RemoveContainerRequest, ReopenContainerLogRequest, StartContainerRequest, StopContainerRequest,
    UpdateContainerResourcesRequest,
};
use swiftlet_model::ids::{ContainerId, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerState, ContainerStatus, ExecOutput, LinuxResources, RuntimeError,
    SandboxConfig,
};

use crate::client::{CHANGE_LIMIT, Call, Client, missing_is_done};
use crate::{convert, pods};

/// The reason that containerd records for a container whose process could not be started.
const START_ERROR: &str = "StartError";

/// Creates a container. One that an earlier call made, whose answer was lost, is the answer.
pub(crate) async fn create(
    client: &Client,
    sandbox: &SandboxId,
    container: &ContainerConfig,
    pod: &SandboxConfig,
) -> Result<ContainerId, RuntimeError> {
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.to_string(),
        config: Some(convert::container::config(container, pod)),
        sandbox_config: Some(convert::sandbox::config(pod)),
    };
    let call = Call::change("CreateContainer");
    let mut service = client.runtime();
    match client
        .send(call, request, |request| service.create_container(request))
        .await
    {
        Ok(answer) => Ok(ContainerId::from(answer.container_id)),
        Err(refusal @ RuntimeError::AlreadyExists { .. }) => {
            adopt(client, sandbox, container, refusal).await
        }
        Err(error) => Err(error),
    }
}

/// The container of the same sandbox, name and attempt, or else the runtime's refusal.
async fn adopt(
    client: &Client,
    sandbox: &SandboxId,
    container: &ContainerConfig,
    refusal: RuntimeError,
) -> Result<ContainerId, RuntimeError> {
    let filter = ContainerFilter {
        pod_sandbox_id: sandbox.to_string(),
        ..ContainerFilter::default()
    };
    let found = pods::containers(client, Some(filter)).await?;
    found
        .into_iter()
        .map(|listed| convert::status::container_of_list(&listed))
        .find(|it| it.name == container.name && it.attempt == container.attempt)
        .map(|container| container.id)
        .ok_or(refusal)
}

/// Starts a container. If it was started before, by a call whose answer was lost, that is success,
/// even when it has ended since: its status tells how.
pub(crate) async fn start(client: &Client, id: &ContainerId) -> Result<(), RuntimeError> {
    let call = Call::change("StartContainer");
    let request = StartContainerRequest {
        container_id: id.to_string(),
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.start_container(request))
        .await;
    match answer {
        Ok(_) => Ok(()),
        Err(refusal @ RuntimeError::Refused { .. }) => match status(client, id).await {
            Ok(status) if was_started(&status) => Ok(()),
            _ => Err(refusal),
        },
        Err(error) => Err(error),
    }
}

fn was_started(status: &ContainerStatus) -> bool {
    match (&status.state, &status.exit) {
        (ContainerState::Running, _) => true,
        (ContainerState::Exited, Some(exit)) => {
            status.started_at.is_some() && exit.reason != START_ERROR
        }
        _ => false,
    }
}

pub(crate) async fn stop(
    client: &Client,
    id: &ContainerId,
    grace: Duration,
) -> Result<(), RuntimeError> {
    let call = Call::within("StopContainer", CHANGE_LIMIT.saturating_add(grace));
    let timeout = convert::whole_seconds(grace);
    let request = StopContainerRequest {
        container_id: id.to_string(),
        timeout,
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.stop_container(request))
        .await;
    missing_is_done(answer.map(drop))
}

pub(crate) async fn remove(client: &Client, id: &ContainerId) -> Result<(), RuntimeError> {
    let call = Call::change("RemoveContainer");
    let request = RemoveContainerRequest {
        container_id: id.to_string(),
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.remove_container(request))
        .await;
    missing_is_done(answer.map(drop))
}

/// Runs a command. The runtime counts whole seconds and kills the command itself; a shorter or
/// broken limit is ours.
pub(crate) async fn exec_sync(
    client: &Client,
    id: &ContainerId,
    command: &[String],
    limit: Duration,
) -> Result<ExecOutput, RuntimeError> {
    let request = ExecSyncRequest {
        container_id: id.to_string(),
        cmd: command.to_vec(),
        timeout: convert::whole_seconds(limit),
    };
    let call = Call::within("ExecSync", limit);
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.exec_sync(request))
        .await?;
    Ok(ExecOutput {
        stdout: answer.stdout,
        stderr: answer.stderr,
        exit_code: answer.exit_code,
    })
}

pub(crate) async fn update_resources(
    client: &Client,
    id: &ContainerId,
    resources: &LinuxResources,
) -> Result<(), RuntimeError> {
    let request = UpdateContainerResourcesRequest {
        container_id: id.to_string(),
        linux: Some(convert::container::resources(resources)),
        ..UpdateContainerResourcesRequest::default()
    };
    let mut service = client.runtime();
    let call = Call::change("UpdateContainerResources");
    let answer = client
        .send(call, request, |request| {
            service.update_container_resources(request)
        })
        .await;
    answer.map(drop)
}

pub(crate) async fn reopen_log(client: &Client, id: &ContainerId) -> Result<(), RuntimeError> {
    let request = ReopenContainerLogRequest {
        container_id: id.to_string(),
    };
    let mut service = client.runtime();
    let call = Call::change("ReopenContainerLog");
    let answer = client
        .send(call, request, |request| {
            service.reopen_container_log(request)
        })
        .await;
    answer.map(drop)
}

/// The container's status. CRI's answer does not name the sandbox, so the list is asked for it.
pub(crate) async fn status(
    client: &Client,
    id: &ContainerId,
) -> Result<ContainerStatus, RuntimeError> {
    let filter = ContainerFilter {
        id: id.to_string(),
        ..ContainerFilter::default()
    };
    let (status, listed) = join(
        status_in(client, STATUS, id, &SandboxId::from("")),
        pods::containers(client, Some(filter)),
    )
    .await;
    let mut status = status?;
    if let Some(container) = listed?.first() {
        status.sandbox = SandboxId::from(container.pod_sandbox_id.as_str());
    }
    Ok(status)
}

/// The limit of a question about one container.
const STATUS: Call = Call::read("ContainerStatus");

/// The status of a container whose sandbox is known.
pub(crate) async fn status_in(
    client: &Client,
    call: Call,
    id: &ContainerId,
    sandbox: &SandboxId,
) -> Result<ContainerStatus, RuntimeError> {
    let request = ContainerStatusRequest {
        container_id: id.to_string(),
        verbose: false,
    };
    let mut service = client.runtime();
    let answer = client
        .send(call, request, |request| service.container_status(request))
        .await?;
    let status = answer.status.ok_or_else(|| RuntimeError::NotFound {
        call: call.name,
        message: format!("the runtime answered no status for container {id}"),
    })?;
    Ok(convert::status::container(&status, sandbox.clone()))
}
