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

    /// Whether it makes something that a terminating pod must not have.
    fn makes(&self) -> bool {
        matches!(
            self,
            Self::Cgroup
                | Self::Volumes
                | Self::Refresh
                | Self::Hosts
                | Self::Image(..)
                | Self::Sandbox
                | Self::Create(_)
                | Self::Start(_)
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
}

impl Lanes {
    /// Whether a call may be made now.
    pub(crate) fn is_free(&self, lane: &Lane, now: Instant) -> bool {
        !self.busy.contains(lane) && !self.waits(lane, now)
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

    /// When the next waiting lane is due.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        self.retries
            .values()
            .map(|retry| retry.not_before)
            .filter(|at| *at > now)
            .min()
    }

    pub(crate) fn is_busy(&self, lane: &Lane) -> bool {
        self.busy.contains(lane)
    }

    /// Whether a query would answer what is true now.
    pub(crate) fn may_query(&self) -> bool {
        !self.busy.iter().any(Lane::changes_runtime)
    }

    /// Whether something is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.busy.iter().any(Lane::makes)
    }

    pub(crate) fn any_busy(&self, which: impl Fn(&Lane) -> bool) -> bool {
        self.busy.iter().any(which)
    }
}
