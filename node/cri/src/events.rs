//! What the runtime tells by itself, and the first process of a container.
//!
//! containerd serves `GetContainerEvents` from 1.7 on. Its send blocks on a slow reader, and the
//! first versions dropped what nobody read (containerd#8892): whoever polls the stream must only
//! take, and look at the lists after each connection.

use futures::future::TryFutureExt;
use futures::stream::{BoxStream, StreamExt};
use k8s_cri::v1 as cri;
use serde_json::Value;
use swiftlet_model::ids::{ContainerId, PodUid, SandboxId};
use swiftlet_model::lifecycle::KernelExit;
use swiftlet_model::runtime::{
    ContainerEvent, ContainerEventKind, ContainerState, FirstProcess, RuntimeError, SandboxState,
};
use tonic::Request;

use crate::client::{Call, Client};
use crate::convert::status::{container, sandbox};
use crate::convert::timestamp;
use crate::status;

/// The stream has no limit of time: it lasts as long as the connection.
const EVENTS: Call = Call::read("GetContainerEvents");

/// The key of a verbose status under which containerd and CRI-O keep their JSON.
const INFO: &str = "info";

pub(crate) fn stream(client: &Client) -> BoxStream<'static, Result<ContainerEvent, RuntimeError>> {
    let client = client.clone();
    let connected = async move {
        let mut service = client.runtime();
        let request = Request::new(cri::GetEventsRequest {});
        let events = match service.get_container_events(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Err(client.error(EVENTS, &status)),
        };
        Ok(events.map(move |event| match event {
            Ok(event) => Ok(told(&event)),
            Err(status) => Err(client.error(EVENTS, &status)),
        }))
    };
    connected.try_flatten_stream().boxed()
}

fn told(event: &cri::ContainerEventResponse) -> ContainerEvent {
    use cri::ContainerEventType as Type;
    let kind = match event.container_event_type() {
        Type::ContainerCreatedEvent => ContainerEventKind::Created,
        Type::ContainerStartedEvent => ContainerEventKind::Started,
        Type::ContainerStoppedEvent => ContainerEventKind::Stopped,
        Type::ContainerDeletedEvent => ContainerEventKind::Deleted,
    };
    let pod = event.pod_sandbox_status.as_ref();
    let pod = pod.map(|status| sandbox(status).pod.uid);
    let of_it = |status: &&cri::ContainerStatus| status.id == event.container_id;
    let status = event.containers_statuses.iter().find(of_it);
    let exit = status.and_then(|status| container(status, SandboxId::from("")).exit);
    ContainerEvent {
        container: ContainerId::from(event.container_id.as_str()),
        pod: pod.filter(|uid: &PodUid| !uid.as_str().is_empty()),
        kind,
        at: timestamp(event.created_at),
        exit: exit.map(|exit| KernelExit {
            code: exit.code,
            signal: 0,
            oom_killed: exit.oom_killed,
        }),
    }
}

/// The runtime's own process. It is known from the connection, which a first call makes.
pub(crate) async fn daemon(client: &Client) -> Result<Option<u32>, RuntimeError> {
    if client.daemon().process().is_none() {
        status::version(client).await?;
    }
    Ok(client.daemon().process())
}

/// The first process of a container. One that is gone has ended.
pub(crate) async fn container_process(
    client: &Client,
    id: &ContainerId,
) -> Result<FirstProcess, RuntimeError> {
    let request = cri::ContainerStatusRequest {
        container_id: id.to_string(),
        verbose: true,
    };
    let mut service = client.runtime();
    let call = Call::read("ContainerStatus");
    let answer = client
        .send(call, request, |request| service.container_status(request))
        .await;
    let answer = match answer {
        Err(error) if error.is_not_found() => return Ok(FirstProcess::Ended),
        answer => answer?,
    };
    let status = answer.status.unwrap_or_default();
    Ok(match container(&status, SandboxId::from("")).state {
        ContainerState::Created => FirstProcess::NotYet,
        ContainerState::Exited => FirstProcess::Ended,
        ContainerState::Running | ContainerState::Unknown => process(answer.info.get(INFO)),
    })
}

/// The first process of a sandbox. One that is gone has ended.
pub(crate) async fn sandbox_process(
    client: &Client,
    id: &ContainerId,
) -> Result<FirstProcess, RuntimeError> {
    let request = cri::PodSandboxStatusRequest {
        pod_sandbox_id: id.to_string(),
        verbose: true,
    };
    let mut service = client.runtime();
    let call = Call::read("PodSandboxStatus");
    let answer = client
        .send(call, request, |request| service.pod_sandbox_status(request))
        .await;
    let answer = match answer {
        Err(error) if error.is_not_found() => return Ok(FirstProcess::Ended),
        answer => answer?,
    };
    let status = answer.status.unwrap_or_default();
    Ok(match sandbox(&status).state {
        SandboxState::NotReady => FirstProcess::Ended,
        SandboxState::Ready => process(answer.info.get(INFO)),
    })
}

/// `pid` of the runtime's own JSON.
fn process(info: Option<&String>) -> FirstProcess {
    let info = info.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let process = info.and_then(|info| u32::try_from(info.get("pid")?.as_u64()?).ok());
    match process {
        Some(0) | None => FirstProcess::Untold,
        Some(process) => FirstProcess::Running(process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(reason: &str) -> cri::ContainerEventResponse {
        let status = |id: &str, code| cri::ContainerStatus {
            id: id.into(),
            state: cri::ContainerState::ContainerExited.into(),
            exit_code: code,
            reason: reason.into(),
            ..cri::ContainerStatus::default()
        };
        cri::ContainerEventResponse {
            container_id: "c1".into(),
            container_event_type: cri::ContainerEventType::ContainerStoppedEvent.into(),
            created_at: 7,
            pod_sandbox_status: Some(cri::PodSandboxStatus {
                metadata: Some(cri::PodSandboxMetadata {
                    uid: "u1".into(),
                    ..cri::PodSandboxMetadata::default()
                }),
                ..cri::PodSandboxStatus::default()
            }),
            containers_statuses: vec![status("c0", 1), status("c1", 137)],
        }
    }

    #[test]
    fn an_end_tells_pod_time_and_the_code_of_its_own_container() {
        let event = told(&stopped("OOMKilled"));
        assert_eq!(event.container.as_str(), "c1");
        assert_eq!(event.pod, Some(PodUid::from("u1")));
        assert_eq!(event.kind, ContainerEventKind::Stopped);
        assert_eq!(event.at.as_nanosecond(), 7);
        let exit = event.exit.expect("the container has ended");
        assert_eq!((exit.code, exit.oom_killed), (137, true));
    }

    #[test]
    fn an_event_of_a_forgotten_sandbox_names_no_pod_and_no_exit() {
        let event = told(&cri::ContainerEventResponse {
            pod_sandbox_status: None,
            containers_statuses: Vec::new(),
            container_event_type: cri::ContainerEventType::ContainerDeletedEvent.into(),
            ..stopped("")
        });
        assert_eq!((event.pod, event.exit), (None, None));
        assert_eq!(event.kind, ContainerEventKind::Deleted);
    }

    #[test]
    fn the_first_process_is_read_from_the_runtimes_own_json() {
        let of = |text: &str| process(Some(&text.to_owned()));
        assert_eq!(of(r#"{"pid": 4711}"#), FirstProcess::Running(4711));
        for nothing in ["{}", r#"{"pid": 0}"#, r#"{"pid": "x"}"#, "no JSON"] {
            assert_eq!(of(nothing), FirstProcess::Untold, "{nothing}");
        }
        assert_eq!(process(None), FirstProcess::Untold);
    }
}
