//! The pod network: served to the shim, written down for containerd, swept from time to time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use swiftlet_cni::conflist::{PodNetwork, write_conf};
use swiftlet_cni::observer::NetworkAttached;
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::{self, NetworkHandle, Sweeper};
use swiftlet_model::runtime::{Runtime, RuntimePod};
use tokio_util::sync::CancellationToken;

use crate::options::NodeOptions;

/// Name of the pod network.
const NETWORK: &str = "swiftlet";

/// Pods on one bridge: the kernel allows 1,024 ports, and attaching gets slower as it fills.
const PODS_PER_BRIDGE: usize = 500;

/// Between two looks for addresses of sandboxes that the runtime does not know. A sandbox that is
/// being made must be known after one of them: the runtime's own limit is four minutes.
const SWEEP_PERIOD: Duration = Duration::from_mins(5);

/// The network that containerd is told of, and that answers it.
pub(crate) fn pod_network(options: &NodeOptions) -> Result<PodNetwork> {
    Ok(PodNetwork {
        name: NETWORK.to_owned(),
        bridge: options.bridge.clone(),
        bridges: usize::try_from(options.max_pods)?.div_ceil(PODS_PER_BRIDGE),
        subnets: options.pod_cidr.values().to_vec(),
        mtu: None,
        data_dir: options.cni_data_dir.clone(),
        socket: options.cni_socket.clone(),
    })
}

/// Serves the network, and tells containerd of it.
pub(crate) fn start(options: &NodeOptions, pods: &[RuntimePod]) -> Result<NetworkHandle> {
    for folder in [
        options.cni_socket.parent(),
        Some(options.cni_data_dir.as_path()),
    ] {
        let folder = folder.unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let network = pod_network(options)?;
    let handle = shim_server::start(NetworkOptions {
        socket: options.cni_socket.clone(),
        conf: Some(network.plugin_conf()),
        observer: Some(Arc::new(record_attached)),
        ..NetworkOptions::default()
    })
    .context("cannot serve pod networks")?;
    let live = sandboxes(pods);
    let freed = handle
        .reconcile(&live)
        .context("cannot read the addresses in use")?;
    if freed > 0 {
        tracing::info!(freed, "addresses of vanished sandboxes freed");
    }
    // Last: from now on containerd may ask.
    let path = write_conf(&options.cni_conf_dir, &network)
        .with_context(|| format!("cannot write to {}", options.cni_conf_dir.display()))?;
    tracing::debug!(path = %path.display(), "network configuration written");
    Ok(handle)
}

/// The network's part of each pod's timeline.
fn record_attached(event: NetworkAttached) {
    let at_us = event
        .finished_at
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros();
    tracing::debug!(
        target: "swiftlet::timeline",
        pod = format_args!("{}/{}", event.pod.namespace, event.pod.name),
        uid = event.pod.uid,
        phase = "network_attached",
        at_us = u64::try_from(at_us).unwrap_or_default(),
        duration_us = u64::try_from(event.duration.as_micros()).unwrap_or_default(),
    );
}

/// Frees, now and then, what the runtime has lost: an attachment whose sandbox it never recorded.
pub(crate) async fn sweep(
    sweeper: Sweeper,
    runtime: Arc<dyn Runtime>,
    shutdown: CancellationToken,
) {
    let mut looks = tokio::time::interval(SWEEP_PERIOD);
    while shutdown.run_until_cancelled(looks.tick()).await.is_some() {
        // Without the runtime's word nothing is lost.
        let Ok(pods) = runtime.list_pods().await else {
            continue;
        };
        let sweeper = sweeper.clone();
        let swept = tokio::task::spawn_blocking(move || sweeper.sweep(&sandboxes(&pods))).await;
        match swept {
            Ok(Ok(0)) => {}
            Ok(Ok(freed)) => tracing::info!(freed, "attachments of unknown sandboxes freed"),
            Ok(Err(error)) => tracing::warn!(%error, "attachments are not swept"),
            Err(error) => tracing::error!(%error, "the sweep of attachments has failed"),
        }
    }
}

fn sandboxes(pods: &[RuntimePod]) -> Vec<&str> {
    let all = pods.iter().flat_map(|pod| &pod.sandboxes);
    all.map(|sandbox| sandbox.id.as_str()).collect()
}
