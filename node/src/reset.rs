//! `swiftlet-node reset`: removes what the agent made on this machine. Every step may be repeated,
//! and a step that fails does not keep the others from being tried.

use std::path::Path;

use anyhow::{Context, Result, bail};
use swiftlet_cgroup::PodCgroups;
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server;
use swiftlet_cri::Cri;
use swiftlet_model::ids::{PodUid, SandboxId};
use swiftlet_model::runtime::Runtime;
use swiftlet_model::volumes::Volumes;
use swiftlet_sys::propagation::unshare;
use swiftlet_volume::{Folders, PodFolders};

use crate::network::pod_network;
use crate::options::NodeOptions;

/// Sandboxes that are stopped at the same time.
const STOPS_IN_FLIGHT: usize = 8;

pub(crate) async fn run(options: &NodeOptions) -> Result<()> {
    let mut errors = Vec::new();
    // The shim asks this process while the sandboxes are stopped.
    let network = start_network(options);
    let network = network
        .map_err(|error| errors.push(format!("{error:#}")))
        .ok();
    let in_runtime = remove_pods(options).await.unwrap_or_else(|error| {
        errors.push(format!("{error:#}"));
        Vec::new()
    });
    errors.extend(remove_volumes(options, in_runtime).await);
    let cgroups = PodCgroups::new(&options.cgroup_root)?;
    errors.extend(
        cgroups
            .remove_all()
            .await
            .err()
            .map(|error| error.to_string()),
    );
    if let Some(network) = network {
        let torn_down = tokio::task::spawn_blocking(move || network.teardown()).await?;
        errors.extend(
            torn_down
                .err()
                .map(|error| format!("{:#}", anyhow::Error::from(error))),
        );
    }
    for path in [options.cni_data_dir.as_path(), options.cni_socket.as_path()] {
        errors.extend(remove_path(path).err().map(|error| format!("{error:#}")));
    }
    let unshared = unshare(&options.root_dir).context("cannot unmount the node's own folder");
    errors.extend(unshared.err().map(|error| format!("{error:#}")));
    if errors.is_empty() {
        Ok(())
    } else {
        bail!("{}", errors.join("; "))
    }
}

fn start_network(options: &NodeOptions) -> Result<shim_server::NetworkHandle> {
    std::fs::create_dir_all(options.cni_socket.parent().unwrap_or(Path::new("/")))?;
    let options = NetworkOptions {
        socket: options.cni_socket.clone(),
        conf: Some(pod_network(options)?.plugin_conf()),
        ..NetworkOptions::default()
    };
    shim_server::start(options).context("cannot serve pod networks")
}

/// Only pods of a kubelet: other programs may use the same runtime. Answers which they were.
async fn remove_pods(options: &NodeOptions) -> Result<Vec<PodUid>> {
    use futures::stream::{StreamExt, TryStreamExt, iter};
    let runtime = Cri::new(options.runtime_socket());
    let pods = runtime.list_pods().await.context("cannot list pods")?;
    let uids = pods.iter().map(|pod| pod.pod.uid.clone()).collect();
    let sandboxes: Vec<SandboxId> = pods
        .into_iter()
        .flat_map(|pod| pod.sandboxes)
        .map(|sandbox| sandbox.id)
        .collect();
    iter(&sandboxes)
        .map(|id| async {
            runtime.stop_sandbox(id).await?;
            runtime.remove_sandbox(id).await
        })
        .buffer_unordered(STOPS_IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await
        .context("cannot remove all pods")?;
    Ok(uids)
}

/// Of these pods and of those with a folder: a pod that has ended may have nothing but its logs.
async fn remove_volumes(options: &NodeOptions, mut pods: Vec<PodUid>) -> Vec<String> {
    let folders = Folders {
        root: options.root_dir.clone(),
        logs: options.pod_logs_dir.clone(),
    };
    let volumes = PodFolders::without_data(folders);
    let mut errors = Vec::new();
    match volumes.pods_on_disk().await {
        Ok(on_disk) => pods.extend(on_disk),
        Err(error) => errors.push(error.to_string()),
    }
    for pod in pods {
        errors.extend(
            volumes
                .tear_down(&pod, true)
                .await
                .err()
                .map(|error| error.to_string()),
        );
    }
    errors
}

fn remove_path(path: &Path) -> Result<()> {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
