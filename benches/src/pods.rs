//! Pods of a bench: made, watched with the client's clock, removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::sync::watch;

use crate::Target;

/// How long one pod may take; the SLO of Kubernetes is 5 s.
pub(crate) const POD_LIMIT: Duration = Duration::from_mins(1);

/// Label of all pods that a bench makes.
const LABEL: &str = "app=swiftlet-bench";

/// When the watch saw something of a pod for the first time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub(crate) scheduled: Option<Instant>,
    pub(crate) running: Option<Instant>,
    pub(crate) ready: Option<Instant>,
    pub(crate) terminated: Option<(Instant, i32)>,
    pub(crate) gone: bool,
}

/// The pods of a bench and what a watch says of them.
pub(crate) struct Pods {
    api: Api<Pod>,
    image: String,
    seen: Arc<Mutex<HashMap<String, Moments>>>,
    changed: watch::Receiver<()>,
}

impl Pods {
    /// Starts to watch.
    pub(crate) async fn start(client: kube::Client, target: &Target) -> Result<Self> {
        let api = Api::<Pod>::namespaced(client, &target.namespace);
        let list = api.list(&ListParams::default().labels(LABEL)).await?;
        if !list.items.is_empty() {
            bail!(
                "{} pods with label {LABEL} exist, delete them first",
                list.items.len()
            );
        }
        let version = list
            .metadata
            .resource_version
            .context("list without resourceVersion")?;
        let seen = Arc::<Mutex<HashMap<String, Moments>>>::default();
        let (changes, changed) = watch::channel(());
        tokio::spawn(follow(api.clone(), version, seen.clone(), changes));
        Ok(Self {
            api,
            image: target.image.clone(),
            seen,
            changed,
        })
    }

    /// Creates a pod that runs `command`, with a service account's token or without one; answers
    /// the moment before the call and the call's duration.
    pub(crate) async fn create(
        &self,
        name: &str,
        command: &[&str],
        token: bool,
    ) -> Result<(Instant, Duration)> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "swiftlet-bench"}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": token,
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": command,
                }],
            },
        }))?;
        self.create_pod(&pod).await
    }

    /// Creates this pod, which must bear the label of all pods of a bench.
    pub(crate) async fn create_pod(&self, pod: &Pod) -> Result<(Instant, Duration)> {
        let start = Instant::now();
        self.api.create(&PostParams::default(), pod).await?;
        Ok((start, start.elapsed()))
    }

    /// The pod as the API has it.
    pub(crate) async fn get(&self, name: &str) -> Result<Pod> {
        Ok(self.api.get(name).await?)
    }

    /// Waits until the watch has seen what `wanted` finds in a pod's moments.
    pub(crate) async fn wait<T>(
        &self,
        name: &str,
        wanted: impl Fn(&Moments) -> Option<T>,
    ) -> Result<T> {
        self.wait_within(POD_LIMIT, name, wanted).await
    }

    /// The same with a limit of one's own.
    pub(crate) async fn wait_within<T>(
        &self,
        limit: Duration,
        name: &str,
        wanted: impl Fn(&Moments) -> Option<T>,
    ) -> Result<T> {
        let mut changed = self.changed.clone();
        let found = async {
            loop {
                changed.borrow_and_update();
                let seen = self.moments(name);
                if let Some(found) = wanted(&seen) {
                    return Ok(found);
                }
                changed.changed().await.context("the watch ended")?;
            }
        };
        tokio::time::timeout(limit, found)
            .await
            .context("not seen in time")?
    }

    /// Forgets what was seen of a pod that is gone, so that its name can be used again.
    pub(crate) fn forget(&self, name: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(name);
    }

    fn moments(&self, name: &str) -> Moments {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(name).copied().unwrap_or_default()
    }

    /// Deletes a pod as its own grace period says.
    pub(crate) async fn delete_gracefully(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes a pod and waits until it is gone.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.api
            .delete(name, &DeleteParams::default().grace_period(0))
            .await?;
        self.wait(name, |moments| moments.gone.then_some(())).await
    }
}

async fn follow(
    api: Api<Pod>,
    mut version: String,
    seen: Arc<Mutex<HashMap<String, Moments>>>,
    changes: watch::Sender<()>,
) -> Result<()> {
    // A server ends each watch after a while; the next one goes on where it ended.
    loop {
        version = follow_once(&api, version, &seen, &changes).await?;
    }
}

/// One watch until its end; answers the version that it came to.
async fn follow_once(
    api: &Api<Pod>,
    mut version: String,
    seen: &Mutex<HashMap<String, Moments>>,
    changes: &watch::Sender<()>,
) -> Result<String> {
    let parameters = WatchParams::default().labels(LABEL).timeout(290);
    let mut stream = api.watch(&parameters, &version).await?.boxed();
    while let Some(event) = stream.try_next().await? {
        let now = Instant::now();
        let (pod, gone) = match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
            WatchEvent::Deleted(pod) => (pod, true),
            WatchEvent::Bookmark(mark) => {
                version = mark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => bail!("watch: {}", status.message),
        };
        if let Some(reached) = &pod.metadata.resource_version {
            version.clone_from(reached);
        }
        let name = pod.metadata.name.clone().unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let moments = seen.entry(name).or_default();
            moments.gone |= gone;
            note(moments, pod.status.as_ref(), now);
        }
        changes.send(()).ok();
    }
    Ok(version)
}

fn note(moments: &mut Moments, status: Option<&PodStatus>, now: Instant) {
    let Some(status) = status else { return };
    let is_true = |kind: &str| {
        let conditions = status.conditions.iter().flatten();
        conditions
            .into_iter()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    if is_true("PodScheduled") {
        moments.scheduled.get_or_insert(now);
    }
    if status.phase.as_deref() == Some("Running") {
        moments.running.get_or_insert(now);
        if is_true("Ready") {
            moments.ready.get_or_insert(now);
        }
    }
    let first = status.container_statuses.iter().flatten().next();
    let ended = first.and_then(|first| first.state.as_ref()?.terminated.as_ref());
    if let Some(ended) = ended {
        moments.terminated.get_or_insert((now, ended.exit_code));
    }
}
