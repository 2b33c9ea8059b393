//! What happens to pods when the machine is switched off: the least important first, each group
//! with its time.
//!
//! Source of rules and words: `pkg/kubelet/nodeshutdown/nodeshutdown_manager.go` of Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::ids::PodKey;
use tokio_util::sync::CancellationToken;

use crate::admission::{SYSTEM_CRITICAL_PRIORITY, priority};
use crate::eviction::disruption_target;
use crate::kuberuntime::config::grace_period_s;
use crate::shared::Shared;
use crate::status::failure::PodFailure;

/// `status.reason` of a pod that ends with the machine.
const TERMINATED: &str = "Terminated";
/// Its `status.message`.
const TERMINATED_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Longest time that statuses are waited for after the last group.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long pods have, by their priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// From this priority on (up to the next one): this long. Empty: the node does not delay the
    /// shutdown.
    pub grace_by_priority: Vec<(i32, Duration)>,
}

impl ShutdownOptions {
    /// From `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`, a part of it.
    pub fn two_groups(all: Duration, critical: Duration) -> Self {
        if all.is_zero() {
            return Self::default();
        }
        Self {
            grace_by_priority: vec![
                (0, all.saturating_sub(critical)),
                (SYSTEM_CRITICAL_PRIORITY, critical.min(all)),
            ],
        }
    }

    /// All of the time: what the machine is asked to wait.
    pub fn total(&self) -> Duration {
        self.grace_by_priority.iter().map(|(_, grace)| *grace).sum()
    }
}

/// Pods that end at the same time.
#[derive(Clone, Debug)]
pub struct Group {
    /// When the next group's turn comes at the latest.
    pub limit: Duration,
    /// The pods, and how long each has to end.
    pub pods: Vec<(Arc<Pod>, Duration)>,
}

/// Who ends when. Pure.
pub fn plan(pods: &[Arc<Pod>], options: &ShutdownOptions) -> Vec<Group> {
    let mut limits = options.grace_by_priority.clone();
    limits.sort_unstable();
    let mut groups: Vec<_> = limits
        .iter()
        .map(|(_, limit)| Group {
            limit: *limit,
            pods: Vec::new(),
        })
        .collect();
    for pod in pods {
        // Who is below the lowest number goes with the first.
        let above = limits.partition_point(|(from, _)| *from <= priority(pod));
        if let Some(group) = groups.get_mut(above.saturating_sub(1)) {
            let own = u64::try_from(grace_period_s(pod)).unwrap_or_default();
            let grace = Duration::from_secs(own).min(group.limit);
            group.pods.push((Arc::clone(pod), grace));
        }
    }
    groups.retain(|group| !group.pods.is_empty());
    groups
}

/// Waits for the machine's word, and ends the pods when it comes.
pub(crate) async fn run(shared: Arc<Shared>, shutdown: CancellationToken) {
    let options = shared.resources.shutdown.clone();
    if options.total().is_zero() {
        return;
    }
    let signals = Arc::clone(&shared.doors.shutdown);
    let watching = async {
        if let Err(error) = signals.delay(options.total()).await {
            tracing::warn!(%error, "the machine will not wait for pods when it shuts down");
            return;
        }
        while let Some(begins) = signals.next().await {
            shared.keeper.set_shutting_down(begins);
            if begins {
                end_pods(&shared, &options).await;
                signals.release().await;
            }
        }
    };
    shutdown.run_until_cancelled(watching).await;
}

async fn end_pods(shared: &Shared, options: &ShutdownOptions) {
    let pods = shared.keeper.room().pods();
    tracing::warn!(pods = pods.len(), "the machine shuts down: its pods end");
    for group in plan(&pods, options) {
        let now = shared.doors.clock.timestamp();
        for (pod, grace) in &group.pods {
            let failure = PodFailure {
                reason: TERMINATED.to_owned(),
                message: TERMINATED_MESSAGE.to_owned(),
                condition: Some(disruption_target(TERMINATED_MESSAGE, now)),
                grace: Some(*grace),
            };
            shared.keeper.fail(PodKey::of(pod).uid, failure).await;
        }
        let mut changed = shared.keeper.changed();
        let ended = async {
            let left = |(pod, _): &(Arc<Pod>, Duration)| {
                shared.keeper.room().contains(&PodKey::of(pod).uid)
            };
            while group.pods.iter().any(left) {
                if changed.changed().await.is_err() {
                    break;
                }
            }
        };
        if tokio::time::timeout(group.limit, ended).await.is_err() {
            tracing::warn!("some pods have not ended in their time");
        }
    }
    // The pods' last statuses are on their way.
    tokio::time::sleep(LAST_WORDS).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stand::pod;

    fn with(name: &str, priority: i32, grace_s: i64) -> Arc<Pod> {
        let mut pod = pod(name);
        let spec = pod.spec.as_mut().unwrap();
        spec.priority = Some(priority);
        spec.termination_grace_period_seconds = Some(grace_s);
        Arc::new(pod)
    }

    fn shown(groups: Vec<Group>) -> Vec<(u64, Vec<(String, u64)>)> {
        let pod = |(pod, grace): (Arc<Pod>, Duration)| {
            (pod.metadata.name.clone().unwrap(), grace.as_secs())
        };
        let group = |group: Group| {
            let pods = group.pods.into_iter().map(pod).collect();
            (group.limit.as_secs(), pods)
        };
        groups.into_iter().map(group).collect()
    }

    #[test]
    fn critical_pods_end_last_and_nobody_gets_more_than_its_group_has() {
        let options = ShutdownOptions::two_groups(Duration::from_secs(30), Duration::from_secs(10));
        assert_eq!(options.total(), Duration::from_secs(30));
        let pods = [
            with("dns", 2_000_000_000, 30),
            with("web", 0, 60),
            with("quick", -5, 3),
        ];
        assert_eq!(
            shown(plan(&pods, &options)),
            [
                (20, vec![("web".to_owned(), 20), ("quick".to_owned(), 3)]),
                (10, vec![("dns".to_owned(), 10)])
            ]
        );
    }

    #[test]
    fn groups_follow_the_priorities_that_a_user_names() {
        let seconds = Duration::from_secs;
        let options = ShutdownOptions {
            grace_by_priority: vec![(100, seconds(20)), (0, seconds(5)), (10, seconds(9))],
        };
        let pods = [with("a", 10, 1), with("b", 99, 1), with("c", 5000, 1)];
        let names: Vec<_> = shown(plan(&pods, &options))
            .into_iter()
            .map(|(limit, pods)| (limit, pods.len()))
            .collect();
        assert_eq!(names, [(9, 2), (20, 1)]);
        assert!(plan(&pods, &ShutdownOptions::default()).is_empty());
    }
}
