//! The pod network: served to the shim, written down for containerd, swept from time to time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use swiftlet_cni::conflist::{PodNetwork, write_conf};
use swiftlet_cni::error::NetworkError;
use swiftlet_cni::observer::NetworkAttached;
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::{self, NetworkHandle, Sweeper};
use swiftlet_cri::Cri;
use swiftlet_model::runtime::RuntimeError;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::options::NodeOptions;

/// Name of the pod network.
const NETWORK: &str = "swiftlet";

/// Pods on one bridge: the kernel allows 1,024 ports, and attaching gets slower as it fills.
const PODS_PER_BRIDGE: usize = 500;

/// Between two looks for addresses of sandboxes that the runtime does not know. A sandbox that is
/// being made must be known after one of them: the runtime's own limit is four minutes.
const SWEEP_PERIOD: Duration = Duration::from_mins(5);

/// Between two tries to have a runtime that came back list its sandboxes: it looks first at what
/// runs.
const LIST_PAUSE: Duration = Duration::from_millis(200);

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
pub(crate) fn start(options: &NodeOptions, sandboxes: &[String]) -> Result<NetworkHandle> {
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
    let freed = handle
        .reconcile(&names(sandboxes))
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

/// Who held anything when another daemon than before answered at the runtime's socket.
///
/// The look is taken on the way to the new daemon, before it is asked for its first sandbox: each
/// holder is its predecessor's, and one that the new daemon does not list is nobody's any more.
pub(crate) fn held_at_return(runtime: &Cri, sweeper: Sweeper) -> watch::Receiver<HashSet<String>> {
    let (sender, receiver) = watch::channel(HashSet::new());
    runtime.on_other_daemon(move || {
        sender.send_replace(sweeper.holding());
    });
    receiver
}

/// Frees what the runtime has lost, an attachment whose sandbox it never recorded: at once when
/// another daemon is there, and else now and then.
pub(crate) async fn sweep(
    sweeper: Sweeper,
    runtime: Arc<Cri>,
    mut held_at_return: watch::Receiver<HashSet<String>>,
    shutdown: CancellationToken,
) {
    let mut looks = tokio::time::interval(SWEEP_PERIOD);
    // After a pause of the machine the looks are as far apart as ever.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let sweeping = async {
        loop {
            let came_back = tokio::select! {
                Ok(()) = held_at_return.changed() => true,
                _ = looks.tick() => false,
            };
            let (sweeper, runtime) = (sweeper.clone(), runtime.as_ref());
            if came_back {
                let list = || runtime.sandbox_ids();
                let (held, live) = at_return(&mut held_at_return, list).await;
                free(move || sweeper.free_lost(held, &names(&live))).await;
            } else if let Ok(live) = runtime.sandbox_ids().await {
                free(move || sweeper.sweep(&names(&live))).await;
            }
            // Without the runtime's word nothing is lost.
        }
    };
    shutdown.run_until_cancelled(sweeping).await;
}

/// Who held anything at the return, and the first list after it.
async fn at_return<F>(
    held: &mut watch::Receiver<HashSet<String>>,
    list: impl Fn() -> F,
) -> (HashSet<String>, Vec<String>)
where
    F: Future<Output = Result<Vec<String>, RuntimeError>>,
{
    // Before the list: if one more daemon comes meanwhile, its look is too new for this list.
    let held = held.borrow_and_update().clone();
    loop {
        match list().await {
            Ok(live) => return (held, live),
            Err(error) => tracing::debug!(%error, "the runtime does not list its sandboxes yet"),
        }
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

/// Works on a thread that may block.
async fn free(work: impl FnOnce() -> Result<usize, NetworkError> + Send + 'static) {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(0)) => {}
        Ok(Ok(freed)) => tracing::info!(freed, "attachments of unknown sandboxes freed"),
        Ok(Err(error)) => tracing::warn!(%error, "attachments are not swept"),
        Err(error) => tracing::error!(%error, "the sweep of attachments has failed"),
    }
}

fn names(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_list_is_compared_with_the_holders_from_before_it() {
        let (sender, mut held) = watch::channel(HashSet::new());
        sender.send_replace(["lost".to_owned()].into());
        let calls = AtomicUsize::new(0);
        let list = || async {
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(RuntimeError::Unavailable {
                    socket: "/run/containerd/containerd.sock".into(),
                    cause: "server is not initialized yet".to_owned(),
                });
            }
            // One more daemon is there: what was made since then is not in this list.
            sender.send_replace(["lost".to_owned(), "new".to_owned()].into());
            Ok(Vec::new())
        };
        let (found, live) = at_return(&mut held, list).await;
        assert_eq!(found, HashSet::from(["lost".to_owned()]));
        assert!(live.is_empty());
        assert!(held.has_changed().unwrap(), "the newer look is next");
    }
}
