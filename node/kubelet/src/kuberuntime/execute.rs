//! The calls themselves, through the doors. Each is one effect; deciding is done elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use swiftlet_model::cgroups::CgroupError;
use swiftlet_model::clock::Deadline;
use swiftlet_model::control_plane::{ControlPlaneError, ObjectRef};
use swiftlet_model::events::{EventKind, FAILED};
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};
use swiftlet_model::probes::ProbeAnswer;
use swiftlet_model::runtime::{
    ContainerConfig, ContainerStatus, ImageUser, LinuxResources, RuntimeError, RuntimePod,
    SandboxConfig, SandboxStatus,
};
use swiftlet_model::volumes::VolumeError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cgroups::qos_class;
use crate::housekeeping::logs::remove_log;
use crate::images::{ImageError, Present};
use crate::kuberuntime::config::{ConfigError, ContainerInputs, container_config};
use crate::kuberuntime::early::Early;
use crate::kuberuntime::env::services::{MASTER_NAMESPACE, service_links, service_variables};
use crate::kuberuntime::env::{
    EnvFacts, INVALID_NAMES, Referenced, environment, invalid_names, references,
};
use crate::kuberuntime::hooks::HookError;
use crate::kuberuntime::limits::pod_cgroup;
use crate::kuberuntime::places::places;
use crate::kuberuntime::sandbox::{SandboxError, prepare};
use crate::prober::check::Check;
use crate::shared::Shared;

/// How long the node's disk may take to remember a container's CPUs before its user is told.
const CPUS_PATIENCE: Duration = Duration::from_secs(5);

/// What a call came back with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was not made: the pod ends.
    Cancelled,
    Queried(Result<RuntimePod, RuntimeError>),
    Cgroup(Result<String, CgroupError>),
    Volumes(Result<BTreeMap<String, PathBuf>, VolumeError>),
    Refreshed(Result<(), VolumeError>),
    /// For these addresses.
    Hosts(Vec<String>, Result<(), VolumeError>),
    Image(Result<Present, ImageError>),
    /// What one container is made with.
    Configured(ContainerName, Result<Box<Early>, CreateError>),
    Sandbox(u32, Result<SandboxId, SandboxError>),
    Address(Result<SandboxStatus, RuntimeError>),
    Created(
        Box<MadeContainer>,
        Result<(ContainerId, StartPermit), CreateError>,
    ),
    Done(Result<(), RuntimeError>),
    /// The limits that hold now.
    Limited(Result<LinuxResources, String>),
    Hook(Result<(), HookError>),
    Record(Result<ContainerStatus, RuntimeError>),
    Probed(ProbeAnswer),
    /// With the logs, or without them.
    TornDown(bool, Result<(), VolumeError>),
    CgroupGone(Result<(), CgroupError>),
    Published(Box<PodStatus>, Result<(), ControlPlaneError>),
    Said(Result<(), ControlPlaneError>),
}

impl Answer {
    /// Whether the call has worked: the next one of its kind need not wait.
    pub(crate) fn worked(&self) -> bool {
        match self {
            Self::Queried(result) => result.is_ok(),
            Self::Cgroup(result) => result.is_ok(),
            Self::Volumes(result) => result.is_ok(),
            Self::Refreshed(result) | Self::Hosts(_, result) | Self::TornDown(_, result) => {
                result.is_ok()
            }
            Self::Image(result) => result.is_ok(),
            Self::Configured(_, result) => result.is_ok(),
            Self::Sandbox(_, result) => result.is_ok(),
            Self::Address(result) => result.is_ok(),
            Self::Created(_, result) => result.is_ok(),
            Self::Done(result) => result.is_ok(),
            Self::CgroupGone(result) => result.is_ok(),
            Self::Said(result) | Self::Published(_, result) => result.is_ok(),
            // These have times of their own.
            Self::Limited(_) | Self::Hook(_) | Self::Record(_) | Self::Probed(_)
            // It was not made.
            | Self::Cancelled => false,
        }
    }
}

/// A place among the starts of this node; given back when the container is started.
#[derive(Debug)]
pub(crate) struct StartPermit(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Which container a create call was about.
#[derive(Clone, Debug)]
pub(crate) struct MadeContainer {
    pub(crate) container: Container,
    pub(crate) sandbox: SandboxId,
    pub(crate) attempt: u32,
    pub(crate) image_id: String,
}

/// Why a container was not created.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// Its configuration cannot be made.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The control plane cannot tell what its environment names.
    #[error("failed to sync references cache: {0}")]
    Reference(#[from] ControlPlaneError),
    /// A part of a volume, or a file of its own, cannot be mounted.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The runtime did not make it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Everything that a create call needs.
#[derive(Debug)]
pub(crate) struct CreateCall {
    pub(crate) pod: Arc<Pod>,
    pub(crate) made: MadeContainer,
    pub(crate) image_user: ImageUser,
    pub(crate) sandbox: SandboxConfig,
    pub(crate) volumes: BTreeMap<String, PathBuf>,
    pub(crate) env: EnvFacts,
    pub(crate) memory_capacity_bytes: i64,
    /// CPUs on which it shall run; empty for all.
    pub(crate) cpuset: String,
    /// The container whose processes an ephemeral container sees.
    pub(crate) target: Option<ContainerId>,
    /// Grows when something changed that the pod names.
    pub(crate) round: u64,
    /// Its configuration, if that was made while the sandbox was.
    pub(crate) config: Option<ContainerConfig>,
}

pub(crate) type Call<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

pub(crate) fn query(shared: &Arc<Shared>, uid: PodUid) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        Answer::Queried(match shared.runtime_name().await {
            Ok(_) => shared.doors.runtime.pod(&uid).await,
            Err(error) => Err(error),
        })
    })
}

/// Makes the cgroup and has it watched before anything can run, and end, in it.
pub(crate) fn cgroup(shared: &Arc<Shared>, pod: Arc<Pod>) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let uid = PodKey::of(&pod).uid;
        let (qos, resources) = (qos_class(&pod), pod_cgroup(&shared, &pod));
        let made = shared.doors.cgroups.ensure_pod(&uid, qos, &resources).await;
        if let Ok(path) = &made {
            shared.doors.tracker.track(&uid, path);
        }
        Answer::Cgroup(made)
    })
}

pub(crate) fn volumes(shared: &Arc<Shared>, pod: Arc<Pod>) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Volumes(shared.doors.volumes.set_up(&pod).await) })
}

pub(crate) fn refresh(shared: &Arc<Shared>, pod: Arc<Pod>) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Refreshed(shared.doors.volumes.refresh(&pod).await) })
}

pub(crate) fn image(
    shared: &Arc<Shared>,
    pod: Arc<Pod>,
    container: Container,
    sandbox: SandboxConfig,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let image = shared.images.ensure(&pod, &container, &sandbox);
        // A pull changes nothing of the pod: a pod that ends does not wait for it.
        match ending.run_until_cancelled(image).await {
            Some(result) => Answer::Image(result),
            None => Answer::Cancelled,
        }
    })
}

/// `hung`: the last try was not answered in time.
pub(crate) fn sandbox(
    shared: &Arc<Shared>,
    pod: Arc<Pod>,
    config: SandboxConfig,
    hung: bool,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let attempt = config.attempt;
        // Before a place is taken, as below.
        let prepared = ending.run_until_cancelled(prepare(&shared, &pod, config));
        let config = match prepared.await {
            None => return Answer::Cancelled,
            Some(Ok(config)) => config,
            Some(Err(error)) => return Answer::Sandbox(attempt, Err(error)),
        };
        let places = if hung {
            &shared.sandbox_retries
        } else {
            &shared.sandbox_starts
        };
        let Some(_permit) = permit(places, &ending).await else {
            return Answer::Cancelled;
        };
        // Waiting for a place is not the runtime's time.
        let deadline = Deadline(shared.doors.clock.now() + shared.limits.sandbox_limit);
        let made = match shared.runtime_name().await {
            Ok(_) => shared.doors.runtime.run_sandbox(&config, deadline).await,
            Err(error) => Err(error),
        };
        Answer::Sandbox(attempt, made.map_err(SandboxError::from))
    })
}

pub(crate) fn address(shared: &Arc<Shared>, id: SandboxId) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Address(shared.doors.runtime.sandbox_status(&id).await) })
}

pub(crate) fn create(
    shared: &Arc<Shared>,
    mut call: CreateCall,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let config = match call.config.take() {
            Some(config) => Some(Ok(config)),
            // Before a place is taken: the control plane may be long in telling what is named.
            None => ending.run_until_cancelled(configure(&shared, &call)).await,
        };
        let mut config = match config {
            None => return Answer::Cancelled,
            Some(Ok(config)) => config,
            Some(Err(error)) => return Answer::Created(Box::new(call.made), Err(error)),
        };
        config.resources.cpuset_cpus.clone_from(&call.cpuset);
        let settled = ending.run_until_cancelled(cpus_settled(&shared, &call));
        if settled.await.is_none() {
            return Answer::Cancelled;
        }
        let Some(permit) = permit(&shared.container_starts, &ending).await else {
            return Answer::Cancelled;
        };
        let runtime = &shared.doors.runtime;
        let made = runtime.create_container(&call.made.sandbox, &config, &call.sandbox);
        let made = made.await.map_err(CreateError::from);
        let result = made.map(|id| (id, StartPermit(permit)));
        Answer::Created(Box::new(call.made), result)
    })
}

pub(crate) fn start(
    shared: &Arc<Shared>,
    id: ContainerId,
    permit: Option<StartPermit>,
    ending: CancellationToken,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        if ending.is_cancelled() {
            return Answer::Cancelled;
        }
        let started = shared.doors.runtime.start_container(&id).await;
        drop(permit);
        Answer::Done(started)
    })
}

pub(crate) fn stop(shared: &Arc<Shared>, id: ContainerId, grace: Duration) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Done(shared.doors.runtime.stop_container(&id, grace).await) })
}

/// With its log: of a container that starts again and again, the disk would fill with logs. The log
/// goes last: of a container that cannot be removed it is still asked for.
pub(crate) fn remove(shared: &Arc<Shared>, id: ContainerId, log: PathBuf) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let removed = shared.doors.runtime.remove_container(&id).await;
        if removed.is_ok() {
            remove_logs(&shared, &[log]).await;
        }
        Answer::Done(removed)
    })
}

async fn remove_logs(shared: &Shared, logs: &[PathBuf]) {
    for log in logs {
        if let Err(error) = remove_log(shared, log).await {
            // It goes with the pod.
            tracing::warn!(%error, "the log of a removed container stays");
        }
    }
}

/// One probe.
pub(crate) struct ProbeCall {
    pub(crate) id: ContainerId,
    pub(crate) check: Check,
    /// Counts from when the probe begins, not while it waits for its place.
    pub(crate) limit: Duration,
}

pub(crate) fn probe(shared: &Arc<Shared>, call: ProbeCall) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        // The semaphore is never closed.
        let _place = shared.probes.acquire().await;
        Answer::Probed(call.check.ask(&shared.doors, &call.id, call.limit).await)
    })
}

pub(crate) fn stop_sandbox(shared: &Arc<Shared>, id: SandboxId) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Done(shared.doors.runtime.stop_sandbox(&id).await) })
}

/// With the logs of the containers that go with it: a sandbox may be replaced again and again.
pub(crate) fn remove_sandbox(
    shared: &Arc<Shared>,
    id: SandboxId,
    logs: Vec<PathBuf>,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let removed = shared.doors.runtime.remove_sandbox(&id).await;
        if removed.is_ok() {
            remove_logs(&shared, &logs).await;
        }
        Answer::Done(removed)
    })
}

pub(crate) fn tear_down(shared: &Arc<Shared>, uid: PodUid, logs: bool) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(
        async move { Answer::TornDown(logs, shared.doors.volumes.tear_down(&uid, logs).await) },
    )
}

pub(crate) fn remove_cgroup(shared: &Arc<Shared>, uid: PodUid) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::CgroupGone(shared.doors.cgroups.remove_pod(&uid).await) })
}

pub(crate) fn publish(
    shared: &Arc<Shared>,
    key: PodKey,
    status: PodStatus,
    urgent: bool,
) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let lane = shared.gate.lane(urgent);
        let Ok(_permit) = lane.acquire().await else {
            return Answer::Cancelled;
        };
        let stored = shared
            .doors
            .control_plane
            .publish_status(&key, &status)
            .await;
        Answer::Published(Box::new(status), stored)
    })
}

pub(crate) fn pod_gone(shared: &Arc<Shared>, key: PodKey) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move { Answer::Said(shared.doors.control_plane.pod_gone(&key).await) })
}

/// A place among the starts of this node, or none if the pod ends first.
async fn permit(
    places: &Arc<Semaphore>,
    ending: &CancellationToken,
) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        () = ending.cancelled() => None,
        // Nobody closes the semaphore.
        permit = Arc::clone(places).acquire_owned() => permit.ok(),
    }
}

/// Waits until the CPUs that the pod has are remembered on disk, and says so if that takes long.
async fn cpus_settled(shared: &Shared, call: &CreateCall) {
    let uid = PodKey::of(&call.pod).uid;
    let settled = shared.cpus.settled(&uid);
    tokio::pin!(settled);
    if tokio::time::timeout(CPUS_PATIENCE, &mut settled)
        .await
        .is_ok()
    {
        return;
    }
    let (recorder, name) = (&shared.recorder, &call.made.container.name);
    let text = "Error: the CPUs that the container gets cannot be written to the node's disk yet";
    let kind = EventKind::Warning;
    recorder.pod(&call.pod, Some(name), kind, FAILED, text.to_owned());
    settled.await;
}

/// What the runtime is told of the container.
pub(crate) async fn configure(
    shared: &Shared,
    call: &CreateCall,
) -> Result<ContainerConfig, CreateError> {
    let (pod, container) = (&call.pod, &call.made.container);
    let named = named_objects(shared, references(pod, container));
    let (referenced, services) = try_join(named, linked_services(shared, pod)).await?;
    for message in invalid_names(pod, container, &referenced) {
        let (recorder, kind) = (&shared.recorder, EventKind::Warning);
        recorder.pod(pod, Some(&container.name), kind, INVALID_NAMES, message);
    }
    let variables = || {
        let made = environment(pod, container, &referenced, &services, &call.env);
        Ok(made?.1)
    };
    let places = places(shared, call, variables).await?;
    let inputs = ContainerInputs {
        attempt: call.made.attempt,
        // The name, not the id: the runtime reports it back as the pod named it.
        image: call.made.container.image.as_deref().unwrap_or_default(),
        image_user: &call.image_user,
        volumes: &call.volumes,
        places: &places,
        referenced: &referenced,
        services: &services,
        env: &call.env,
        memory_capacity_bytes: call.memory_capacity_bytes,
        settings: &shared.pods,
        target: call.target.clone(),
    };
    Ok(container_config(pod, container, &inputs)?)
}

/// What the ConfigMaps and Secrets hold that a container's environment names.
async fn named_objects(
    shared: &Shared,
    objects: BTreeSet<ObjectRef>,
) -> Result<Referenced, ControlPlaneError> {
    let all = objects.into_iter().map(|object| async move {
        let data = shared.doors.control_plane.referenced(&object).await?;
        Ok((object, data))
    });
    Ok(try_join_all(all).await?.into_iter().collect())
}

/// Variables of the API server's Service, and of the pod's namespace if they are linked. The
/// control plane's door answers them from what it has heard.
async fn linked_services(
    shared: &Shared,
    pod: &Pod,
) -> Result<BTreeMap<String, String>, ControlPlaneError> {
    let services = &shared.doors.control_plane;
    let own = async {
        match &pod.metadata.namespace {
            Some(namespace) if service_links(pod) => services.services(namespace).await,
            _ => Ok(Arc::default()),
        }
    };
    let (own, master) = try_join(own, services.services(MASTER_NAMESPACE)).await?;
    Ok(service_variables(&own, &master))
}
