//! The calls that a worker has in flight. One call per lane; a lane that failed waits before its
//! next try.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use swiftlet_model::ids::{ContainerId, ContainerName, SandboxId};

use crate::kuberuntime::execute::Answer;
use crate::pod_worker::look::Look;
use crate::prober::schedule::ProbeKey;

/// A call that a worker makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Ask the runtime for all that it holds of the pod.
    Query,
    /// Make the pod's cgroup and have it watched.
    Cgroup,
    /// Make the volumes.
    Volumes,
    /// Bring volumes up to date that show what may change.
    Refresh,
    /// Write the pod's table of hosts.
    Hosts,
    /// Get the container's image, which is the second.
    Image(ContainerName, String),
    /// Make the sandbox.
    Sandbox,
    /// Put a container's configuration together while the sandbox is made.
    Configure(ContainerName),
    /// Ask for the sandbox's addresses.
    Address(SandboxId),
    /// Create a container.
    Create(ContainerName),
    /// Start a container.
    Start(ContainerName),
    /// Run a container's postStart hook.
    PostStart(ContainerId),
    /// Run a container's preStop hook.
    PreStop(ContainerId),
    /// Stop a container; the number grows when the grace period is shortened.
    Stop(ContainerId, u32),
    /// Remove a container.
    Remove(ContainerId),
    /// Probe a container.
    Probe(ProbeKey),
    /// Ask for a container's record.
    Record(ContainerId),
    /// Stop a sandbox.
    StopSandbox(SandboxId),
    /// Remove a sandbox.
    RemoveSandbox(SandboxId),
    /// Remove the volumes.
    TearDown,
    /// Remove the cgroup.
    RemoveCgroup,
    /// Write the pod's own limits.
    PodLimits,
    /// Change the limits of a container that runs.
    Limits(ContainerId),
    /// Publish the status.
    Publish,
    /// Say that nothing is left.
    PodGone,
}

impl Lane {
    /// The container that it is about, if it names one by id.
    pub(crate) fn container(&self) -> Option<&ContainerId> {
        match self {
            Self::PostStart(id)
            | Self::PreStop(id)
            | Self::Stop(id, _)
            | Self::Remove(id)
            | Self::Record(id)
            | Self::Limits(id) => Some(id),
            Self::Probe(key) => Some(&key.id),
            _ => None,
        }
    }

    /// The sandbox that it is about, if it names one by id.
    pub(crate) fn sandbox(&self) -> Option<&SandboxId> {
        match self {
            Self::Address(id) | Self::StopSandbox(id) | Self::RemoveSandbox(id) => Some(id),
            _ => None,
        }
    }

    /// Whether it changes what the runtime would answer to a query by adding or removing things.
    fn changes_runtime(&self) -> bool {
        matches!(
            self,
            Self::Sandbox
                | Self::Create(_)
                | Self::Start(_)
                | Self::Remove(_)
                | Self::StopSandbox(_)
                | Self::RemoveSandbox(_)
        )
    }

    /// Whether it makes something in which a process may run: no sandbox is stopped meanwhile.
    fn makes(&self) -> bool {
        matches!(
            self,
            Self::Cgroup | Self::Sandbox | Self::Create(_) | Self::Start(_)
        )
    }

    /// Whether it makes something on the node that must be removed again. It may hang on a disk or
    /// a mount, for which nothing of the runtime waits.
    fn prepares(&self) -> bool {
        matches!(
            self,
            Self::Volumes | Self::Refresh | Self::Hosts | Self::Configure(_) | Self::Image(..)
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    failures: u32,
    not_before: Instant,
}

/// All lanes of one worker.
#[derive(Default)]
pub(crate) struct Lanes {
    calls: FuturesUnordered<BoxFuture<'static, (Lane, Answer)>>,
    busy: HashSet<Lane>,
    retries: HashMap<Lane, Retry>,
    look: Look,
}

impl Lanes {
    /// Whether a call may be made now. If it must wait after a failure, the worker looks again
    /// then.
    pub(crate) fn is_free(&mut self, lane: &Lane, now: Instant) -> bool {
        if self.busy.contains(lane) {
            return false;
        }
        let retry = self.retries.get(lane).map(|retry| retry.not_before);
        match retry.filter(|at| now < *at) {
            Some(at) => {
                self.look.at(at);
                false
            }
            None => true,
        }
    }

    /// When a call may be made that was asked for since the last time this was called.
    pub(crate) fn take_look(&mut self) -> Look {
        std::mem::take(&mut self.look)
    }

    /// Whether the lane waits after a failure.
    pub(crate) fn waits(&self, lane: &Lane, now: Instant) -> bool {
        self.retries
            .get(lane)
            .is_some_and(|retry| now < retry.not_before)
    }

    /// Makes a call. The caller has asked [`Self::is_free`].
    pub(crate) fn launch(
        &mut self,
        lane: Lane,
        call: impl Future<Output = Answer> + Send + 'static,
    ) {
        debug_assert!(!self.busy.contains(&lane), "{lane:?} is in flight already");
        self.busy.insert(lane.clone());
        self.calls
            .push(call.map(move |answer| (lane, answer)).boxed());
    }

    /// The next answer; waits for ever if no call is in flight. Cancel safe.
    pub(crate) async fn next(&mut self) -> (Lane, Answer) {
        match self.calls.next().await {
            Some((lane, answer)) => {
                self.busy.remove(&lane);
                (lane, answer)
            }
            None => std::future::pending().await,
        }
    }

    /// The lane's call has worked.
    pub(crate) fn worked(&mut self, lane: &Lane) {
        self.retries.remove(lane);
    }

    /// The lane's call has failed; `wait` tells from the number of failures how long to wait.
    pub(crate) fn failed(&mut self, lane: Lane, now: Instant, wait: fn(u32) -> Duration) {
        let failures = self
            .retries
            .get(&lane)
            .map_or(1, |retry| retry.failures.saturating_add(1));
        self.retries.insert(
            lane,
            Retry {
                failures,
                not_before: now + wait(failures),
            },
        );
    }

    /// Lets waiting lanes try again at once.
    pub(crate) fn hurry(&mut self, which: impl Fn(&Lane) -> bool, now: Instant) {
        for (lane, retry) in &mut self.retries {
            if which(lane) {
                retry.not_before = now;
            }
        }
    }

    /// Forgets the failures of calls that will not be made any more.
    pub(crate) fn forget(&mut self, which: impl Fn(&Lane) -> bool) {
        self.retries.retain(|lane, _| !which(lane));
    }

    pub(crate) fn is_busy(&self, lane: &Lane) -> bool {
        self.busy.contains(lane)
    }

    /// Whether a query would answer what is true now.
    pub(crate) fn may_query(&self) -> bool {
        !self.busy.iter().any(Lane::changes_runtime)
    }

    /// Whether something is being made in which a process may run.
    pub(crate) fn is_making(&self) -> bool {
        self.busy.iter().any(Lane::makes)
    }

    /// Whether something is being made on the node.
    pub(crate) fn is_preparing(&self) -> bool {
        self.busy.iter().any(Lane::prepares)
    }

    pub(crate) fn any_busy(&self, which: impl Fn(&Lane) -> bool) -> bool {
        self.busy.iter().any(which)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kuberuntime::backoff;

    #[test]
    fn who_asks_for_a_call_that_must_wait_looks_again_when_it_may_be_made() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let ms = Duration::from_millis;
        lanes.failed(Lane::Query, now, backoff::retry);
        lanes.failed(Lane::Cgroup, now, backoff::retry);
        assert!(!lanes.is_free(&Lane::Query, now + ms(99)));
        // The time may be over before anybody begins to wait: it is not lost.
        assert_eq!(lanes.take_look().next(), Some(now + ms(100)));
        assert!(lanes.is_free(&Lane::Query, now + ms(100)));
        assert_eq!(
            lanes.take_look().next(),
            None,
            "nobody asked for the cgroup"
        );
    }

    #[test]
    fn failures_of_calls_about_what_is_gone_are_forgotten() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let lane = Lane::Stop("c1".into(), 0);
        lanes.failed(lane.clone(), now, backoff::retry);
        lanes.failed(Lane::Query, now, backoff::retry);
        let gone = ContainerId::from("c1");
        lanes.forget(|lane| lane.container() == Some(&gone));
        assert!(lanes.is_free(&lane, now) && !lanes.is_free(&Lane::Query, now));
    }

    #[test]
    fn what_hangs_on_a_disk_keeps_no_sandbox() {
        let runtime = [Lane::Cgroup, Lane::Sandbox, Lane::Create("a".into())];
        assert!(runtime.iter().all(|lane| lane.makes() && !lane.prepares()));
        let node = [Lane::Volumes, Lane::Refresh, Lane::Hosts];
        assert!(node.iter().all(|lane| !lane.makes() && lane.prepares()));
    }
}
