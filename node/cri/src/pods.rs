//! What the runtime holds, pod by pod: two lists joined by the pod's uid.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::{join, join_all, try_join};
use k8s_cri::v1::{
    Container, ContainerFilter, ListContainersRequest, ListPodSandboxRequest, PodSandbox,
    PodSandboxFilter,
};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::runtime::{RuntimeError, RuntimePod, labels};

use crate::client::{Call, Client};
use crate::convert::status::{container_of_list, pod_of_labels, sandbox_of_list};
use crate::{container, sandbox};

/// Limit for one container or sandbox while its pod is looked at. The runtime answers from its
/// memory; one that it hangs on must not hide the others.
const STATUS_LIMIT: Duration = Duration::from_secs(5);

/// How a container is asked for, within that limit.
const CONTAINER: Call = Call::within("ContainerStatus", STATUS_LIMIT);

/// How a sandbox is.
const SANDBOX: Call = Call::within("PodSandboxStatus", STATUS_LIMIT);

/// One pod with every status. What vanishes between the list and the status is left out.
pub(crate) async fn one(client: &Client, uid: &PodUid) -> Result<RuntimePod, RuntimeError> {
    let (sandboxes, containers) = lists(client, Some(uid)).await?;
    let key = sandboxes
        .iter()
        .map(|it| sandbox_of_list(it).pod)
        .chain(containers.iter().map(|it| pod_of_labels(&it.labels)))
        .next()
        .unwrap_or_else(|| PodKey {
            namespace: String::new(),
            name: String::new(),
            uid: uid.clone(),
        });
    let sandboxes: Vec<_> = sandboxes.iter().map(sandbox_of_list).collect();
    let containers: Vec<_> = containers.iter().map(container_of_list).collect();
    let (sandboxes, containers) = join(
        join_all(sandboxes.iter().map(async |it| {
            let answer = sandbox::status_within(client, SANDBOX, &it.id).await;
            or_listed(answer, it, (uid, it.id.as_str()))
        })),
        join_all(containers.iter().map(async |it| {
            let answer = container::status_in(client, CONTAINER, &it.id, &it.sandbox).await;
            or_listed(answer, it, (uid, it.id.as_str()))
        })),
    )
    .await;
    Ok(sorted(RuntimePod {
        pod: key,
        sandboxes: present(sandboxes)?,
        containers: present(containers)?,
    }))
}

/// One pod or all of them, from the two lists alone.
pub(crate) async fn listed(
    client: &Client,
    uid: Option<&PodUid>,
) -> Result<Vec<RuntimePod>, RuntimeError> {
    let (sandboxes, containers) = lists(client, uid).await?;
    Ok(join_lists(&sandboxes, &containers))
}

async fn lists(
    client: &Client,
    uid: Option<&PodUid>,
) -> Result<(Vec<PodSandbox>, Vec<Container>), RuntimeError> {
    let filter = uid.map(|uid| ContainerFilter {
        label_selector: selector(uid),
        ..ContainerFilter::default()
    });
    try_join(sandboxes(client, uid), containers(client, filter)).await
}

/// The sandboxes of one pod, or all of them.
pub(crate) async fn sandboxes(
    client: &Client,
    uid: Option<&PodUid>,
) -> Result<Vec<PodSandbox>, RuntimeError> {
    let filter = uid.map(|uid| PodSandboxFilter {
        label_selector: selector(uid),
        ..PodSandboxFilter::default()
    });
    let request = ListPodSandboxRequest { filter };
    let mut service = client.runtime();
    let answer = client
        .send(Call::read("ListPodSandbox"), request, |request| {
            service.list_pod_sandbox(request)
        })
        .await?;
    Ok(answer.items)
}

/// The containers that pass the filter, or all of them.
pub(crate) async fn containers(
    client: &Client,
    filter: Option<ContainerFilter>,
) -> Result<Vec<Container>, RuntimeError> {
    let request = ListContainersRequest { filter };
    let mut service = client.runtime();
    let answer = client
        .send(Call::read("ListContainers"), request, |request| {
            service.list_containers(request)
        })
        .await?;
    Ok(answer.containers)
}

fn selector(uid: &PodUid) -> HashMap<String, String> {
    HashMap::from([(labels::POD_UID.to_owned(), uid.to_string())])
}

/// Groups both lists by uid. Objects without the label were not made by a kubelet and are left out.
fn join_lists(sandboxes: &[PodSandbox], containers: &[Container]) -> Vec<RuntimePod> {
    let mut pods = BTreeMap::<PodUid, RuntimePod>::new();
    for listed in sandboxes
        .iter()
        .filter(|it| it.labels.contains_key(labels::POD_UID))
    {
        let status = sandbox_of_list(listed);
        let pod = pods
            .entry(status.pod.uid.clone())
            .or_insert_with(|| RuntimePod::empty(status.pod.clone()));
        pod.sandboxes.push(status);
    }
    for listed in containers
        .iter()
        .filter(|it| it.labels.contains_key(labels::POD_UID))
    {
        let key = pod_of_labels(&listed.labels);
        let pod = pods
            .entry(key.uid.clone())
            .or_insert_with(|| RuntimePod::empty(key));
        pod.containers.push(container_of_list(listed));
    }
    pods.into_values().map(sorted).collect()
}

/// Newest first. The attempt counts before the clock, which may jump.
fn sorted(mut pod: RuntimePod) -> RuntimePod {
    pod.sandboxes
        .sort_by_key(|it| Reverse((it.attempt, it.created_at)));
    pod.containers
        .sort_by_key(|it| Reverse((it.attempt, it.created_at)));
    pod
}

/// A container or sandbox of which the runtime does not answer is as the list has it: the others of
/// its pod do not wait for it.
fn or_listed<T: Clone>(
    answer: Result<T, RuntimeError>,
    listed: &T,
    (pod, id): (&PodUid, &str),
) -> Result<T, RuntimeError> {
    match answer {
        Err(error @ RuntimeError::Timeout { .. }) => {
            tracing::warn!(%pod, id, %error, "degraded: known from the list alone");
            Ok(listed.clone())
        }
        answer => answer,
    }
}

fn present<T>(answers: Vec<Result<T, RuntimeError>>) -> Result<Vec<T>, RuntimeError> {
    answers
        .into_iter()
        .filter(|answer| !matches!(answer, Err(error) if error.is_not_found()))
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_cri::v1::{ContainerMetadata, PodSandboxMetadata};

    use super::*;

    fn labels_of(uid: &str, container: Option<&str>) -> HashMap<String, String> {
        let mut map = HashMap::from([
            (labels::POD_UID.to_owned(), uid.to_owned()),
            (labels::POD_NAME.to_owned(), format!("name-{uid}")),
            (labels::POD_NAMESPACE.to_owned(), "default".to_owned()),
        ]);
        if let Some(name) = container {
            map.insert(labels::CONTAINER_NAME.to_owned(), name.to_owned());
        }
        map
    }

    fn listed_sandbox(id: &str, uid: &str, attempt: u32, created_at: i64) -> PodSandbox {
        PodSandbox {
            id: id.into(),
            metadata: Some(PodSandboxMetadata {
                name: format!("name-{uid}"),
                uid: uid.into(),
                namespace: "default".into(),
                attempt,
            }),
            created_at,
            labels: labels_of(uid, None),
            ..PodSandbox::default()
        }
    }

    fn listed_container(id: &str, uid: &str, attempt: u32, created_at: i64) -> Container {
        Container {
            id: id.into(),
            metadata: Some(ContainerMetadata {
                name: "main".into(),
                attempt,
            }),
            created_at,
            labels: labels_of(uid, Some("main")),
            ..Container::default()
        }
    }

    #[test]
    fn lists_are_joined_by_uid_with_the_highest_attempt_first() {
        let sandboxes = [
            listed_sandbox("s0", "a", 0, 900),
            listed_sandbox("s1", "a", 1, 100),
        ];
        let containers = [
            listed_container("c0", "a", 0, 900),
            listed_container("c1", "a", 1, 100),
            listed_container("c2", "b", 0, 5),
        ];
        let pods = join_lists(&sandboxes, &containers);
        assert_eq!(pods.len(), 2);
        assert_eq!(pods[0].sandboxes[0].id.as_str(), "s1");
        assert_eq!(pods[0].newest("main").unwrap().id.as_str(), "c1");
        assert!(pods[1].sandboxes.is_empty());
        assert_eq!(pods[1].pod.name, "name-b");
    }

    #[test]
    fn what_no_kubelet_made_is_left_alone() {
        let foreign = PodSandbox {
            id: "x".into(),
            ..PodSandbox::default()
        };
        assert!(join_lists(&[foreign], &[]).is_empty());
    }

    #[test]
    fn a_sandbox_that_the_runtime_hangs_on_is_as_the_list_has_it_too() {
        let listed = sandbox_of_list(&listed_sandbox("s1", "u", 0, 100));
        let hangs = Err(RuntimeError::Timeout {
            call: SANDBOX.name,
            limit_ms: 5000,
        });
        assert!(SANDBOX.limit < crate::client::READ_LIMIT);
        let found = or_listed(hangs, &listed, (&PodUid::from("u"), "s1"));
        assert_eq!(found.expect("the list's"), listed);
    }

    #[test]
    fn a_container_that_the_runtime_hangs_on_is_as_the_list_has_it() {
        let listed = container_of_list(&k8s_cri::v1::Container {
            id: "c1".into(),
            state: k8s_cri::v1::ContainerState::ContainerRunning.into(),
            ..k8s_cri::v1::Container::default()
        });
        let hangs = Err(RuntimeError::Timeout {
            call: "ContainerStatus",
            limit_ms: 5000,
        });
        let found = or_listed(hangs, &listed, (&PodUid::from("u"), "c1"));
        assert_eq!(found.expect("the list's"), listed);
        let gone = RuntimeError::NotFound {
            call: "ContainerStatus",
            message: "c1".into(),
        };
        let found = or_listed(Err(gone), &listed, (&PodUid::from("u"), "c1"));
        assert!(found.is_err_and(|error| error.is_not_found()));
    }
}
