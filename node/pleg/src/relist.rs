//! The safety net: compares the runtime's lists with the last ones.
//!
//! Everything is listed slowly, and at once when that is asked for. Pods that no source sees are
//! listed each second: by themselves, unless they are many or the last list has failed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::{LifecycleKind, LifecycleSource};
use swiftlet_model::runtime::{
    ContainerState, ProcessOf, RuntimeError, RuntimeEvents, RuntimePod, SandboxState,
};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout, timeout_at};

use crate::RELIST_INTERVAL_FALLBACK;
use crate::health::Unseen;
use crate::merge::News;
use crate::pidfd::{Running, Wanted};
use crate::teller::{Report, Stopped, Teller};
use crate::tracked::TrackedPods;

/// Longest wait for the runtime's lists; the kubelet calls its own relist unhealthy after three
/// minutes.
const RELIST_LIMIT: Duration = Duration::from_secs(30);

/// Shortest time between two relists, however often one is asked for.
const RELIST_PAUSE: Duration = Duration::from_millis(100);

/// Pods that are listed by themselves: for more of them one list of everything costs less.
const SINGLE_PODS_MAX: usize = 8;

/// Everything that the task works with.
pub(crate) struct Relist {
    pub(crate) runtime: Arc<dyn RuntimeEvents>,
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

/// What is listed next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Pods(BTreeSet<PodUid>),
}

/// What became of each pod between two lists.
type Differences = BTreeMap<PodUid, Vec<Difference>>;

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
        let mut scope = Scope::All;
        let mut all_due = tokio::time::Instant::now();
        loop {
            let looked = match (&scope, &mut last) {
                (Scope::Pods(pods), Some(last)) => self.look_at(pods, last).await,
                (_, last) => {
                    all_due = tokio::time::Instant::now() + self.interval;
                    self.look_at_all(last).await
                }
            };
            let is_answered = match looked {
                Ok(is_answered) => is_answered,
                Err(Stopped) => return,
            };
            sleep(RELIST_PAUSE).await;
            let unseen = self.teller.health.unseen(|| self.tracked.unseen());
            let next = next_scope(is_answered, unseen);
            let soon = tokio::time::Instant::now() + RELIST_INTERVAL_FALLBACK - RELIST_PAUSE;
            let due = next.as_ref().map_or(all_due, |_| soon.min(all_due));
            let is_asked = timeout_at(due, self.asked.notified()).await.is_ok();
            scope = match next {
                Some(next) if !is_asked && due < all_due => next,
                _ => Scope::All,
            };
        }
    }

    /// Whether the runtime has answered.
    async fn look_at_all(&self, last: &mut Option<Seen>) -> Result<bool, Stopped> {
        let begun = Instant::now();
        let Some(pods) = self.list(self.runtime.list_pods()).await else {
            return Ok(false);
        };
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.teller.health.count(|stats| {
            stats.relists += 1;
            stats.relist_last_ms = took;
        });
        self.running.send_replace(Arc::new(running(&pods)));
        let current = seen(&pods);
        let differences = match last {
            Some(last) => differences(last, &current),
            None => self.first(&current, begun),
        };
        self.tell(differences).await?;
        let watched: HashSet<ContainerId> = self.tracked.containers().into_iter().collect();
        self.teller.merge.forget(begun, |container| {
            current.contains_key(container) || watched.contains(container)
        });
        *last = Some(current);
        Ok(true)
    }

    /// The same for some pods; the others stay as the last list had them.
    async fn look_at(&self, pods: &BTreeSet<PodUid>, last: &mut Seen) -> Result<bool, Stopped> {
        for uid in pods {
            let Some(found) = self.list(self.runtime.listed_pod(uid)).await else {
                return Ok(false);
            };
            self.running
                .send_modify(|running| replace(running, uid, &found));
            let current = seen(&found);
            let before = last.extract_if(|_, (pod, _)| pod == uid).collect();
            let differences = differences(&before, &current);
            last.extend(current);
            self.tell(differences).await?;
        }
        Ok(true)
    }

    async fn list(
        &self,
        asked: impl Future<Output = Result<Vec<RuntimePod>, RuntimeError>>,
    ) -> Option<Vec<RuntimePod>> {
        match timeout(RELIST_LIMIT, asked).await {
            Ok(Ok(pods)) => return Some(pods),
            Ok(Err(error)) => tracing::warn!(%error, "the runtime cannot be listed"),
            Err(_) => tracing::warn!(
                limit_s = RELIST_LIMIT.as_secs(),
                "the runtime's list takes too long"
            ),
        }
        self.teller.health.count(|stats| stats.relist_failures += 1);
        None
    }

    async fn tell(&self, differences: Differences) -> Result<(), Stopped> {
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
        Ok(())
    }

    /// The first list has nothing to be compared with: one hint per pod, and what is over is over.
    fn first(&self, current: &Seen, begun: Instant) -> Differences {
        let mut hints = Differences::new();
        for (container, (pod, state)) in current {
            // Whether it is news does not matter: a hint is told in any case.
            let _ = match state {
                State::Running => self.teller.merge.started(container, begun),
                State::Ended => self.teller.merge.died(container, true, begun),
                State::NotRunning => News::Old,
            };
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

/// What is to be listed within a second; `None` if the slow list is enough.
fn next_scope(is_answered: bool, unseen: Unseen) -> Option<Scope> {
    match unseen {
        // A list that failed is tried again: nothing else would find what it was asked for.
        _ if !is_answered => Some(Scope::All),
        Unseen::All => Some(Scope::All),
        Unseen::Pods(pods) if pods.is_empty() => None,
        Unseen::Pods(pods) if pods.len() > SINGLE_PODS_MAX => Some(Scope::All),
        Unseen::Pods(pods) => Some(Scope::Pods(pods)),
    }
}

/// Puts what runs of one pod in the place of what did.
fn replace(all: &mut Running, pod: &PodUid, found: &[RuntimePod]) {
    let others = all.iter().filter(|one| one.pod != *pod).cloned();
    *all = Arc::new(others.chain(running(found)).collect());
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
fn differences(last: &Seen, current: &Seen) -> Differences {
    let mut pods = Differences::new();
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
    fn few_pods_are_listed_by_themselves_and_all_after_a_failure() {
        let pods = |count: usize| {
            let names = (0..count).map(|number| PodUid::from(number.to_string().as_str()));
            names.collect::<BTreeSet<_>>()
        };
        let of = |is_answered, count| next_scope(is_answered, Unseen::Pods(pods(count)));
        assert_eq!(of(true, 0), None);
        assert_eq!(of(true, 1), Some(Scope::Pods(pods(1))));
        assert_eq!(of(true, SINGLE_PODS_MAX + 1), Some(Scope::All));
        assert_eq!(of(false, 0), Some(Scope::All));
        assert_eq!(next_scope(true, Unseen::All), Some(Scope::All));
    }

    #[test]
    fn equal_lists_say_nothing() {
        let both = list(&[("a", "p", State::Running), ("b", "p", State::Ended)]);
        assert!(differences(&both, &both).is_empty());
    }
}
