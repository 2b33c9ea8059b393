//! The safety net: compares the runtime's lists with the last ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::{LifecycleKind, LifecycleSource};
use swiftlet_model::runtime::{ContainerState, ProcessOf, Runtime, RuntimePod, SandboxState};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::RELIST_INTERVAL_FALLBACK;
use crate::pidfd::{Running, Wanted};
use crate::teller::{Report, Stopped, Teller};
use crate::tracked::TrackedPods;

/// Longest wait for the runtime's lists; the kubelet calls its own relist unhealthy after three
/// minutes.
const RELIST_LIMIT: Duration = Duration::from_secs(30);

/// Shortest time between two relists, however often one is asked for.
const RELIST_PAUSE: Duration = Duration::from_millis(100);

/// Everything that the task works with.
pub(crate) struct Relist {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) interval: Duration,
    pub(crate) teller: Teller,
    pub(crate) tracked: Arc<TrackedPods>,
    pub(crate) asked: Arc<Notify>,
    /// What runs, for the source that must be told.
    pub(crate) running: watch::Sender<Running>,
}

/// What a list says of containers and sandboxes.
type Seen = HashMap<ContainerId, (PodUid, State)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotRunning,
    Running,
    Ended,
}

/// What became of one container between two lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    Started(ContainerId),
    Died(ContainerId),
    Changed,
}

impl Relist {
    /// Runs until the sync loop is gone.
    pub(crate) async fn run(self) {
        let mut last: Option<Seen> = None;
        loop {
            let begun = Instant::now();
            if let Some(seen) = self.list().await {
                if self.compare(last.as_ref(), &seen, begun).await.is_err() {
                    return;
                }
                last = Some(seen);
            } else {
                let health = &self.teller.health;
                health.count(|stats| stats.relist_failures += 1);
            }
            sleep(RELIST_PAUSE).await;
            let blind = self.teller.health.is_blind() || last.is_none();
            let wait = if blind {
                RELIST_INTERVAL_FALLBACK
            } else {
                self.interval
            };
            // Asked for, or due: either way the same thing happens.
            let _ = timeout(wait.saturating_sub(RELIST_PAUSE), self.asked.notified()).await;
        }
    }

    async fn list(&self) -> Option<Seen> {
        let begun = Instant::now();
        match timeout(RELIST_LIMIT, self.runtime.list_pods()).await {
            Ok(Ok(pods)) => {
                let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.teller.health.count(|stats| {
                    stats.relists += 1;
                    stats.relist_last_ms = took;
                });
                self.running.send_replace(Arc::new(running(&pods)));
                Some(seen(&pods))
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the runtime cannot be listed");
                None
            }
            Err(_) => {
                tracing::warn!(
                    limit_s = RELIST_LIMIT.as_secs(),
                    "the runtime's list takes too long"
                );
                None
            }
        }
    }

    async fn compare(
        &self,
        last: Option<&Seen>,
        current: &Seen,
        begun: Instant,
    ) -> Result<(), Stopped> {
        let differences = match last {
            Some(last) => differences(last, current),
            None => self.first(current, begun),
        };
        for (pod, differences) in differences {
            for difference in differences {
                let report = Report {
                    pod: pod.clone(),
                    kind: difference.kind(),
                    at: Timestamp::now(),
                    source: LifecycleSource::Relist,
                };
                self.teller.tell(report).await?;
            }
        }
        let watched: HashSet<ContainerId> = self.tracked.containers().into_iter().collect();
        self.teller.merge.forget(begun, |container| {
            current.contains_key(container) || watched.contains(container)
        });
        Ok(())
    }

    /// The first list has nothing to be compared with: one hint per pod, and what is over is over.
    fn first(&self, current: &Seen, begun: Instant) -> BTreeMap<PodUid, Vec<Difference>> {
        let mut hints = BTreeMap::new();
        for (container, (pod, state)) in current {
            match state {
                State::Running => drop(self.teller.merge.started(container, begun)),
                State::Ended => drop(self.teller.merge.died(container, begun)),
                State::NotRunning => (),
            }
            hints.insert(pod.clone(), vec![Difference::Changed]);
        }
        hints
    }
}

impl Difference {
    fn kind(self) -> LifecycleKind {
        match self {
            Self::Started(container) => Report::started(container),
            Self::Died(container) => Report::died(container, None),
            Self::Changed => LifecycleKind::Changed,
        }
    }
}

/// Containers and sandboxes that have a process.
fn running(pods: &[RuntimePod]) -> Vec<Wanted> {
    let wanted = |pod: &RuntimePod, id: &str, of| Wanted {
        container: ContainerId::from(id),
        pod: pod.pod.uid.clone(),
        of,
    };
    let mut running = Vec::new();
    for pod in pods {
        let ready = pod.sandboxes.iter();
        let ready = ready.filter(|sandbox| sandbox.state == SandboxState::Ready);
        running.extend(ready.map(|one| wanted(pod, one.id.as_str(), ProcessOf::Sandbox)));
        let run = pod.containers.iter();
        let run = run.filter(|container| container.state == ContainerState::Running);
        running.extend(run.map(|one| wanted(pod, one.id.as_str(), ProcessOf::Container)));
    }
    running
}

fn seen(pods: &[RuntimePod]) -> Seen {
    let mut seen = Seen::new();
    for pod in pods {
        for sandbox in &pod.sandboxes {
            let state = match sandbox.state {
                SandboxState::Ready => State::Running,
                SandboxState::NotReady => State::Ended,
            };
            // The kernel's events name a sandbox by its id too.
            let id = ContainerId::from(sandbox.id.as_str());
            seen.insert(id, (pod.pod.uid.clone(), state));
        }
        for container in &pod.containers {
            let state = match container.state {
                ContainerState::Running => State::Running,
                ContainerState::Exited => State::Ended,
                ContainerState::Created | ContainerState::Unknown => State::NotRunning,
            };
            seen.insert(container.id.clone(), (pod.pod.uid.clone(), state));
        }
    }
    seen
}

/// What happened to each pod between two lists; at most one [`Difference::Changed`] per pod, and
/// last.
fn differences(last: &Seen, current: &Seen) -> BTreeMap<PodUid, Vec<Difference>> {
    let mut pods: BTreeMap<PodUid, Vec<Difference>> = BTreeMap::new();
    for (container, (pod, state)) in current {
        let before = last.get(container).map(|(_, state)| *state);
        if before == Some(*state) {
            continue;
        }
        let difference = match state {
            State::Running => Difference::Started(container.clone()),
            State::Ended => Difference::Died(container.clone()),
            State::NotRunning => Difference::Changed,
        };
        pods.entry(pod.clone()).or_default().push(difference);
    }
    for (container, (pod, state)) in last {
        if !current.contains_key(container) {
            let difference = match state {
                State::Running => Difference::Died(container.clone()),
                State::NotRunning | State::Ended => Difference::Changed,
            };
            pods.entry(pod.clone()).or_default().push(difference);
        }
    }
    for differences in pods.values_mut() {
        differences.sort();
        differences.dedup();
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str, State)]) -> Seen {
        let entry = |(id, pod, state): &(&str, &str, State)| {
            (ContainerId::from(*id), (PodUid::from(*pod), *state))
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn two_lists_give_starts_deaths_and_one_hint_per_pod() {
        let last = list(&[
            ("a", "p", State::Running),
            ("b", "p", State::Running),
            ("c", "p", State::NotRunning),
            ("d", "q", State::Running),
            ("e", "q", State::Ended),
            ("f", "q", State::Ended),
        ]);
        let current = list(&[
            ("a", "p", State::Running),
            ("b", "p", State::Ended),
            ("c", "p", State::Running),
            ("g", "r", State::NotRunning),
        ]);
        let found = differences(&last, &current);
        let of = |pod: &str| found[&PodUid::from(pod)].clone();
        assert_eq!(
            of("p"),
            [
                Difference::Started("c".into()),
                Difference::Died("b".into())
            ]
        );
        assert_eq!(of("q"), [Difference::Died("d".into()), Difference::Changed]);
        assert_eq!(of("r"), [Difference::Changed]);
    }

    #[test]
    fn equal_lists_say_nothing() {
        let both = list(&[("a", "p", State::Running), ("b", "p", State::Ended)]);
        assert!(differences(&both, &both).is_empty());
    }
}
