//! Builds the node top to bottom and runs it until a signal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use swiftlet_cgroup::PodCgroups;
use swiftlet_cri::Cri;
use swiftlet_kubelet::{Doors, Kubelet, KubeletOptions, NodeFacts, PodSettings, Timeline};
use swiftlet_model::clock::SystemClock;
use swiftlet_model::control_plane::ControlPlaneReceiver;
use swiftlet_model::runtime::RuntimeEvents;
use swiftlet_node_link::kubeconfig::Kubeconfig;
use swiftlet_node_link::{NodeLink, NodeLinkOptions};
use swiftlet_pleg::{Pleg, PlegHandle, PlegOptions};
use swiftlet_pressure::{NodePressure, Places};
use swiftlet_probe::NetworkProbes;
use swiftlet_sys::propagation::{self, Sharing};
use swiftlet_volume::{Amounts, CheckpointFiles, CredentialFiles, Folders, PodFolders};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::configuration::Settings;
use crate::doctor::configuration::obstacle;
use crate::facts;
use crate::logind::Logind;
use crate::network;
use crate::options::NodeOptions;
use crate::server;
use crate::sources;

/// Version of the agent, for people.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Folder of checkpoints, in the agent's own.
const CHECKPOINTS: &str = "checkpoints";

/// How long the runtime may take to answer at the start before the node goes on without it.
const RUNTIME_LIMIT: Duration = Duration::from_secs(5);

/// Runs the node agent. Pods live on when it ends.
pub(crate) async fn run(options: &NodeOptions, settings: Settings) -> Result<()> {
    if let Some(obstacle) = obstacle(&settings) {
        bail!(obstacle);
    }
    let kubeconfig = Kubeconfig::read(&options.kubeconfig)?;
    let runtime = Arc::new(Cri::new(options.runtime_socket()));
    let sandboxes = known_sandboxes(&runtime).await?;
    // After what may keep the agent from starting, which then leaves no mount, and before anything
    // is opened there: a file below a new mount is another one for the kernel.
    share_root(options)?;
    let server = server::bind(options, &settings, &kubeconfig).await?;
    let network = network::start(options, &sandboxes)?;
    let (link, control) = start_link(options, kubeconfig)?;
    let control_plane = Arc::new(link);
    let (pleg, lifecycle) = start_pleg(options, runtime.clone());
    let shutdown = CancellationToken::new();
    tokio::spawn(network::sweep(
        network.sweeper(),
        runtime.clone(),
        network::held_at_return(&runtime, network.sweeper()),
        shutdown.clone(),
    ));
    let facts = NodeFacts {
        kubelet_port: server.as_ref().map(server::Bound::port),
        ..facts::read(options, &settings)?
    };
    let facts = follow_facts(facts, &pleg, shutdown.clone());
    let node_name = options.node_name();
    let (expected, lists) = sources::start(&settings.static_pods, &node_name, &shutdown);
    let volumes = pod_folders(options, control_plane.clone());
    let volumes = Arc::new(volumes.with_amounts(given_to_pods(facts.clone())));
    let kubelet = Kubelet::new(
        KubeletOptions {
            node_name: options.node_name(),
            node: facts,
            limits: settings.limits,
            pods: pod_settings(options, settings.pods),
            resources: settings.resources,
            log_root: options.pod_logs_dir.clone(),
            timeline: Timeline::default(),
        },
        Doors {
            runtime: runtime.clone(),
            control_plane,
            tracker: Arc::new(pleg),
            volumes: volumes.clone(),
            files: volumes.clone(),
            logs: volumes,
            cgroups: Arc::new(PodCgroups::new(&options.cgroup_root)?),
            stats: Arc::new(node_pressure(options)?),
            shutdown: Arc::new(Logind::default()),
            checkpoints: Arc::new(CheckpointFiles::new(options.root_dir.join(CHECKPOINTS))),
            credentials: Arc::new(node_credentials(options)),
            probes: Arc::new(NetworkProbes::new()),
            clock: Arc::new(SystemClock),
        },
    );
    tracing::info!(
        node = options.node_name(),
        version = VERSION,
        "node agent started"
    );
    let kubelet = kubelet.with_sources(expected, lists);
    if let Some(server) = server {
        server.serve(kubelet.board(), runtime, shutdown.clone());
    }
    let work = tokio::spawn(kubelet.run(control, lifecycle, shutdown.clone()));
    until_signal(work, shutdown, wait_for_signal()).await?;
    network.shutdown();
    Ok(())
}

fn start_link(
    options: &NodeOptions,
    kubeconfig: Kubeconfig,
) -> Result<(NodeLink, ControlPlaneReceiver)> {
    NodeLink::start(NodeLinkOptions {
        node_name: options.node_name(),
        version: VERSION.to_owned(),
        kubeconfig,
    })
    .with_context(|| format!("cannot use kubeconfig {}", options.kubeconfig.display()))
}

fn pod_folders(options: &NodeOptions, control_plane: Arc<NodeLink>) -> PodFolders {
    let folders = Folders {
        root: options.root_dir.clone(),
        logs: options.pod_logs_dir.clone(),
    };
    PodFolders::new(folders, control_plane)
}

/// Makes the node's own folder one whose mounts are passed on to containers that ask for it.
fn share_root(options: &NodeOptions) -> Result<()> {
    let root = &options.root_dir;
    std::fs::create_dir_all(root).with_context(|| format!("make {}", root.display()))?;
    let shared = propagation::share(root);
    match shared.with_context(|| format!("cannot share the mounts below {}", root.display()))? {
        Sharing::Already => {}
        Sharing::Made => tracing::info!(root = %root.display(), "mounts below it are passed on"),
        Sharing::Busy => tracing::warn!(
            root = %root.display(),
            "mounts below it are not passed on before the next start without pods' volumes"
        ),
    }
    Ok(())
}

/// Lets the kubelet work until the signal. One that ends by itself is of no use to its pods: the
/// agent ends with it, so that whoever started it starts it again.
async fn until_signal<T>(
    mut work: JoinHandle<T>,
    shutdown: CancellationToken,
    signal: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::select! {
        ended = &mut work => {
            ended.context("the kubelet has failed; pods live on")?;
            bail!("the kubelet has ended by itself; pods live on");
        }
        signal = signal => signal?,
    }
    tracing::info!("shutting down; pods live on");
    shutdown.cancel();
    work.await?;
    Ok(())
}

/// What the runtime holds at the start. A runtime that does not answer is a reason not to start:
/// without it nothing can be run, and addresses in use could be given away.
async fn known_sandboxes(runtime: &Cri) -> Result<Vec<String>> {
    let list = tokio::time::timeout(RUNTIME_LIMIT, runtime.sandbox_ids()).await;
    let list = list.context("the container runtime does not answer in time")?;
    list.context("needs a container runtime: start containerd, or see swiftlet-node doctor")
}

fn pod_settings(options: &NodeOptions, pods: PodSettings) -> PodSettings {
    PodSettings {
        seccomp_root: options.root_dir.join("seccomp"),
        ..pods
    }
}

fn node_credentials(options: &NodeOptions) -> CredentialFiles {
    CredentialFiles::new(&options.root_dir, std::env::home_dir().as_deref())
}

fn node_pressure(options: &NodeOptions) -> Result<NodePressure> {
    Ok(NodePressure::new(Places {
        root: options.root_dir.clone(),
        hierarchies: swiftlet_cgroup::hierarchies()?,
        cgroup_root: options.cgroup_root.clone(),
    }))
}

fn start_pleg(
    options: &NodeOptions,
    runtime: Arc<dyn RuntimeEvents>,
) -> (PlegHandle, swiftlet_model::lifecycle::LifecycleReceiver) {
    let pleg = PlegOptions {
        relist_interval: Duration::from_secs(options.relist_interval_s.max(1)),
        only: options.events.source(),
        ..PlegOptions::default()
    };
    Pleg::start(pleg, runtime)
}

/// What stands in volumes where a pod names no limit.
fn given_to_pods(facts: watch::Receiver<NodeFacts>) -> impl Fn() -> Amounts {
    move || {
        let all = facts.borrow().allocatable();
        Amounts {
            cpu_milli: all.cpu_milli,
            memory_bytes: all.memory_bytes,
            ephemeral_storage_bytes: all.ephemeral_storage_bytes,
        }
    }
}

/// Facts that follow the source of lifecycle events.
fn follow_facts(
    mut facts: NodeFacts,
    pleg: &PlegHandle,
    shutdown: CancellationToken,
) -> watch::Receiver<NodeFacts> {
    let mut health = pleg.health();
    facts.kernel_events = Some(facts::kernel_events(&health.borrow_and_update().mode));
    let (sender, receiver) = watch::channel(facts);
    tokio::spawn(shutdown.run_until_cancelled_owned(async move {
        while health.changed().await.is_ok() {
            let events = Some(facts::kernel_events(&health.borrow_and_update().mode));
            sender.send_if_modified(|facts| {
                let changed = facts.kernel_events != events;
                facts.kernel_events.clone_from(&events);
                changed
            });
        }
    }));
    receiver
}

async fn wait_for_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => (),
        _ = interrupt.recv() => (),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_whose_kubelet_is_gone_ends_with_an_error() {
        let shutdown = CancellationToken::new();
        let panicked = tokio::spawn(async { panic!("a bug") });
        let never = std::future::pending();
        let ended = until_signal::<()>(panicked, shutdown.clone(), never).await;
        assert!(ended.is_err());
        let ended = tokio::spawn(async {});
        let never = std::future::pending();
        let ended = until_signal(ended, shutdown.clone(), never).await;
        assert!(ended.is_err());
        let token = shutdown.clone();
        let works = tokio::spawn(async move { token.cancelled().await });
        let signal = std::future::ready(Ok(()));
        let ended = until_signal(works, shutdown, signal).await;
        assert!(ended.is_ok(), "told to end, it ends well");
    }
}
