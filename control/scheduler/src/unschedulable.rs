//! Says in a pod's status why it has no node. In the background: the next attempt says it again.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use swiftlet_client::api::{Api, PatchKind};
use swiftlet_client::{Client, ClientError, Object};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Most conditions that wait to be written.
const CONDITION_QUEUE_MAX: usize = 1024;

/// Writes `PodScheduled=False`.
#[derive(Clone)]
pub(crate) struct ConditionWriter {
    queue: mpsc::Sender<Unscheduled>,
}

struct Unscheduled {
    pod: Arc<Pod>,
    reason: &'static str,
    message: String,
}

impl ConditionWriter {
    pub(crate) fn spawn(api: Arc<dyn Api>, shutdown: CancellationToken) -> Self {
        let (queue, mut work) = mpsc::channel::<Unscheduled>(CONDITION_QUEUE_MAX);
        let client = Client::new(api);
        tokio::spawn(shutdown.run_until_cancelled_owned(async move {
            while let Some(unscheduled) = work.recv().await {
                if let Err(error) = write(&client, &unscheduled).await {
                    debug!(%error, pod = %unscheduled.pod.key(), "condition not written");
                }
            }
        }));
        Self { queue }
    }

    /// Never waits.
    pub(crate) fn report(&self, pod: &Arc<Pod>, reason: &'static str, message: &str) {
        if condition_of(pod).is_some_and(|known| says(known, reason, message)) {
            return;
        }
        let unscheduled = Unscheduled {
            pod: Arc::clone(pod),
            reason,
            message: message.to_owned(),
        };
        if self.queue.try_send(unscheduled).is_err() {
            debug!(pod = %pod.key(), "condition dropped: the queue is full");
        }
    }
}

async fn write(client: &Client, unscheduled: &Unscheduled) -> Result<(), ClientError> {
    let pod = &unscheduled.pod;
    // The time of the last transition stays while the condition stays False.
    let since = condition_of(pod)
        .filter(|known| known.status == "False")
        .and_then(|known| known.last_transition_time.clone())
        .unwrap_or_else(|| Time(Timestamp::now()));
    let condition = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some(unscheduled.reason.to_owned()),
        message: Some(unscheduled.message.clone()),
        last_transition_time: Some(since),
        ..PodCondition::default()
    };
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [condition]},
    });
    client
        .patch_status::<Pod>(&pod.key(), PatchKind::Strategic, &patch)
        .await?;
    Ok(())
}

fn condition_of(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled")
}

fn says(condition: &PodCondition, reason: &str, message: &str) -> bool {
    condition.status == "False"
        && condition.reason.as_deref() == Some(reason)
        && condition.message.as_deref() == Some(message)
}
