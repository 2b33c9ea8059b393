//! Mirror pods: static pods as the API shows them.
//!
//! ```text
//!  sync loop ──▶ view (statics, mirrors) ──▶ keeper: compares (pure), creates and removes
//!                                        └─▶ door: a static pod's status goes to its mirror pod
//! ```
//! The keeper is driven by states, not by events: it compares after every change and after every
//! failure, and each of its requests may be repeated. Rules: `pkg/kubelet/pod/mirror_client.go`
//! and `tryReconcileMirrorPods` in `pkg/kubelet/kubelet.go`.

mod door;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_model::control_plane::{ControlPlane, ControlPlaneError};
use swiftlet_model::ids::PodKey;
use swiftlet_model::sources::{CONFIG_HASH, CONFIG_MIRROR, annotation};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::backoff;
use crate::pod_manager::{FullName, PodManager, full_name};

pub(crate) use door::Door;

/// What the keeper compares. The sync loop sends it.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The static pods.
    statics: BTreeMap<FullName, Arc<Pod>>,
    /// What the API shows of this node's static pods.
    mirrors: BTreeMap<FullName, Arc<Pod>>,
    /// Whether the control plane has said which mirror pods there are.
    connected: bool,
    /// Whether all sources have said which static pods there are.
    complete: bool,
}

impl View {
    pub(crate) fn of(pods: &PodManager, connected: bool, complete: bool) -> Self {
        let statics = pods.statics();
        let mirrors = pods.mirrors().iter();
        Self {
            statics: statics
                .map(|pod| (full_name(pod), Arc::clone(pod)))
                .collect(),
            mirrors: mirrors
                .map(|(name, pod)| (name.clone(), Arc::clone(pod)))
                .collect(),
            connected,
            complete,
        }
    }

    /// Whether there is nothing to mirror and nothing to remove.
    pub(crate) fn is_empty(&self) -> bool {
        self.statics.is_empty() && self.mirrors.is_empty()
    }

    /// Whether this uid is that of a static pod.
    fn is_static(&self, key: &PodKey) -> bool {
        let name = (key.namespace.clone(), key.name.clone());
        let known = self.statics.get(&name);
        known.is_some_and(|pod| PodKey::of(pod).uid == key.uid)
    }

    /// The mirror pod that shows this static pod now.
    fn mirror_of(&self, key: &PodKey) -> Option<PodKey> {
        let name = (key.namespace.clone(), key.name.clone());
        let mirror = self.mirrors.get(&name)?;
        let known = self.statics.get(&name)?;
        shows(mirror, known).then(|| PodKey::of(mirror))
    }

    /// Whether some static pod is in this namespace.
    fn has_static_in(&self, namespace: &str) -> bool {
        let first = (namespace.to_owned(), String::new());
        let mut from = self.statics.range(first..);
        from.next().is_some_and(|((of, _), _)| of == namespace)
    }
}

/// A request to the API.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Create(Box<Pod>),
    Delete(PodKey),
}

/// Whether a mirror pod is the picture of this static pod, and stays.
fn shows(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.deletion_timestamp.is_none()
        && annotation(mirror, CONFIG_MIRROR) == annotation(pod, CONFIG_HASH)
}

/// What the API must be told. Pure.
fn steps(view: &View) -> Vec<Step> {
    if !view.connected {
        return Vec::new();
    }
    let wrong = view.mirrors.iter().filter(|(name, mirror)| {
        let known = view.statics.get(*name);
        known.map_or(view.complete, |pod| !shows(mirror, pod))
    });
    let delete = wrong.map(|(_, mirror)| Step::Delete(PodKey::of(mirror)));
    let missing = view
        .statics
        .iter()
        .filter(|(name, _)| !view.mirrors.contains_key(*name));
    let create = missing.map(|(_, pod)| Step::Create(Box::new(mirror_pod(pod))));
    delete.chain(create).collect()
}

/// The picture of a static pod: the same names, labels and spec, and the hash.
fn mirror_pod(pod: &Pod) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = annotation(pod, CONFIG_HASH).unwrap_or_default().to_owned();
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: pod.spec.clone(),
        status: None,
    }
}

/// Keeps the API's mirror pods as the static pods are.
pub(crate) async fn keep(
    mut view: watch::Receiver<View>,
    control_plane: Arc<dyn ControlPlane>,
    shutdown: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let seen = view.borrow_and_update().clone();
        let mut failed = false;
        for step in steps(&seen) {
            failed |= !carry_out(&step, control_plane.as_ref()).await;
        }
        failures = if failed { failures + 1 } else { 0 };
        let pause = if failed {
            backoff::retry(failures)
        } else {
            Duration::MAX
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => (),
        }
    }
}

/// One request; whether the API did it.
async fn carry_out(step: &Step, control_plane: &dyn ControlPlane) -> bool {
    let (verb, pod, done) = match step {
        Step::Create(pod) => {
            let done = control_plane.create_mirror_pod(pod).await;
            ("created", PodKey::of(pod), done)
        }
        Step::Delete(key) => {
            let done = control_plane.delete_mirror_pod(key).await;
            ("removed", key.clone(), done)
        }
    };
    let (namespace, name) = (&pod.namespace, &pod.name);
    match done {
        Ok(()) => tracing::info!(namespace, name, "mirror pod {verb}"),
        Err(ControlPlaneError::Disconnected) => return false,
        Err(error) => {
            tracing::warn!(namespace, name, %error, "mirror pod not {verb}");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;
