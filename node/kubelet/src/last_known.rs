//! The pods that the control plane named last, kept on disk: after a reboot they start even if it
//! cannot be reached.
//!
//! One document is written as a whole, some time after the last write at the earliest, and never
//! on the way of a start. It holds one JSON object in each line: the Services by namespace, then
//! the pods, whose statuses tell which of them had ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use swiftlet_model::checkpoints::Checkpoints;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::mirror::Door;

/// Name of the checkpoint.
const CHECKPOINT: &str = "last-known-pods";
/// How long the control plane may take to speak before its last word is used.
const CONTROL_PLANE_WAIT: Duration = Duration::from_secs(3);
/// How long a change waits for the next ones before all are written: a burst of starts costs one
/// write.
const SAVE_DELAY: Duration = Duration::from_secs(5);
/// Pods that are encoded before others get a turn.
const ENCODED_AT_ONCE: usize = 16;

/// What is ripe.
#[derive(Debug)]
pub(crate) enum Ripe {
    /// The control plane has not spoken for a while: its last word.
    Loaded(Vec<Arc<Pod>>),
    /// Time to write.
    SaveDue,
}

/// The last known pods of one kubelet.
pub(crate) struct LastKnown {
    checkpoints: Arc<dyn Checkpoints>,
    door: Arc<Door>,
    loading: JoinSet<Vec<Arc<Pod>>>,
    saving: JoinSet<()>,
    due: Option<Instant>,
}

impl LastKnown {
    /// Begins to load. Call it within a tokio runtime.
    pub(crate) fn start(checkpoints: Arc<dyn Checkpoints>, door: Arc<Door>) -> Self {
        let mut loading = JoinSet::new();
        loading.spawn(load(Arc::clone(&checkpoints), Arc::clone(&door)));
        Self {
            checkpoints,
            door,
            loading,
            saving: JoinSet::new(),
            due: None,
        }
    }

    /// Something changed that should be written.
    pub(crate) fn changed(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + SAVE_DELAY);
    }

    /// Waits until something is ripe. Cancel safe.
    pub(crate) async fn next(&mut self) -> Ripe {
        let due = self.due;
        let later = async move {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(Ok(pods)) = self.loading.join_next() => Ripe::Loaded(pods),
            () = later => Ripe::SaveDue,
        }
    }

    /// Writes the pods, unless the last write has not ended: then later.
    pub(crate) fn save(&mut self, pods: Vec<Arc<Pod>>) {
        while self.saving.try_join_next().is_some() {}
        self.due = None;
        if !self.saving.is_empty() {
            self.changed();
            return;
        }
        let checkpoints = Arc::clone(&self.checkpoints);
        self.saving
            .spawn(save(checkpoints, Arc::clone(&self.door), pods));
    }

    /// Writes what has not been written, at the end of the program.
    pub(crate) async fn finish(mut self, pods: Vec<Arc<Pod>>) {
        while self.saving.join_next().await.is_some() {}
        if self.due.is_some() {
            save(self.checkpoints, self.door, pods).await;
        }
    }
}

async fn load(checkpoints: Arc<dyn Checkpoints>, door: Arc<Door>) -> Vec<Arc<Pod>> {
    let start = Instant::now();
    let document = match checkpoints.load(CHECKPOINT).await {
        Ok(document) => document.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "the last known pods cannot be read");
            return Vec::new();
        }
    };
    let (services, pods) = decode(&document);
    door.remember_services(services);
    tokio::time::sleep_until(start + CONTROL_PLANE_WAIT).await;
    pods
}

async fn save(checkpoints: Arc<dyn Checkpoints>, door: Arc<Door>, pods: Vec<Arc<Pod>>) {
    let document = encode(&door.last_services(), &pods).await;
    if let Err(error) = checkpoints.save(CHECKPOINT, &document).await {
        tracing::warn!(%error, "the last known pods cannot be written");
    }
}

type Services = BTreeMap<String, Arc<Vec<Service>>>;

async fn encode(services: &Services, pods: &[Arc<Pod>]) -> Vec<u8> {
    let services: BTreeMap<_, _> = services.iter().map(|(of, all)| (of, &**all)).collect();
    let mut document = serde_json::to_vec(&services).unwrap_or_default();
    for some in pods.chunks(ENCODED_AT_ONCE) {
        for pod in some {
            document.push(b'\n');
            document.extend(serde_json::to_vec(&**pod).unwrap_or_default());
        }
        tokio::task::yield_now().await;
    }
    document
}

/// What cannot be read is left out: the control plane knows it, too.
fn decode(document: &[u8]) -> (Services, Vec<Arc<Pod>>) {
    let mut lines = document.split(|byte| *byte == b'\n');
    let services = lines.next().unwrap_or_default();
    let services: BTreeMap<String, Vec<Service>> =
        serde_json::from_slice(services).unwrap_or_default();
    let services = services.into_iter().map(|(of, all)| (of, Arc::new(all)));
    let pods = lines.filter_map(|line| {
        let pod = serde_json::from_slice::<Pod>(line);
        pod.inspect_err(|error| tracing::warn!(%error, "a last known pod cannot be read"))
            .ok()
            .map(Arc::new)
    });
    (services.collect(), pods.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_read_and_a_damaged_line_costs_one_pod() {
        let pod = |name: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            Arc::new(pod)
        };
        let pods: Vec<_> = (0..40).map(|number| pod(&format!("p{number}"))).collect();
        let services = Services::from([("default".into(), Arc::new(vec![Service::default()]))]);
        let document = encode(&services, &pods).await;
        let (services_read, pods_read) = decode(&document);
        assert_eq!((&services_read, &pods_read), (&services, &pods));
        let (services_read, pods_read) = decode(&document[..document.len() - 3]);
        assert_eq!((services_read.len(), pods_read.len()), (1, 39));
        assert_eq!(decode(b"").1.len(), 0);
    }
}
