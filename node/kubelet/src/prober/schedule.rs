//! Which probe is due when, and what its answers mean. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::{ContainerState, RuntimePod};
use swiftlet_proto::pod::is_sidecar;

use crate::prober::results::{ProbeKind, ProbeResults, Unhealthy};
use crate::prober::thresholds::Thresholds;

/// `periodSeconds` that a probe does not name (`SetDefaults_Probe` in `pkg/apis/core/v1`).
const PERIOD: Duration = Duration::from_secs(10);
/// `timeoutSeconds` that a probe does not name.
const LIMIT: Duration = Duration::from_secs(1);

/// A new container that is not ready yet is asked again after this time, then after twice that, up
/// to its period: probes at other times than the period's make it ready sooner, and their failures
/// do not count. (Kubernetes documents this of readiness: "may be executed at times other than the
/// configured periodSeconds interval".)
const EARLY_WAIT: Duration = Duration::from_millis(100);
/// The same for a command, which costs the runtime a process.
const EARLY_WAIT_EXEC: Duration = Duration::from_secs(1);

/// One probe of one container that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProbeKey {
    pub(crate) id: ContainerId,
    pub(crate) kind: ProbeKind,
}

/// What runs of the pod, and how it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a RuntimePod,
    /// The pod ends: only readiness still matters.
    pub(crate) ending: bool,
    pub(crate) now: Instant,
    pub(crate) timestamp: Timestamp,
}

/// All probes of one pod.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// When this program began to look at the pod. What ran before that is probed first at some
    /// moment of its period, so that a restart does not probe everything at once.
    since: Timestamp,
    probes: BTreeMap<ProbeKey, Planned>,
}

#[derive(Debug)]
struct Planned {
    container: String,
    /// The next probe of those that count.
    due: Instant,
    period: Duration,
    /// The next one of those that come early.
    early: Option<Instant>,
    /// How long the one after that waits.
    early_wait: Duration,
    /// The one in flight came early.
    is_early: bool,
    thresholds: Thresholds,
    /// It has said its last word on this container.
    done: bool,
    grace: Option<Duration>,
}

impl Schedule {
    pub(crate) fn new(since: Timestamp) -> Self {
        Self {
            since,
            probes: BTreeMap::new(),
        }
    }

    /// Learns what runs: probes of new containers are planned, those of ended ones forgotten.
    pub(crate) fn follow(&mut self, running: &Running<'_>) {
        let mut present = BTreeSet::new();
        for container in probed(running.pod) {
            let newest = running.observed.newest(&container.name);
            let Some(record) = newest.filter(|one| one.state == ContainerState::Running) else {
                continue;
            };
            for kind in ProbeKind::ALL {
                let Some(probe) = probe_of(container, kind) else {
                    continue;
                };
                if running.ending && kind != ProbeKind::Readiness {
                    continue;
                }
                let id = record.id.clone();
                let key = ProbeKey { id, kind };
                let ran = record.started_at.unwrap_or(running.timestamp);
                present.insert(key.clone());
                if !self.probes.contains_key(&key) {
                    let planned = self.plan(&key, container, probe, ran, running);
                    self.probes.insert(key, planned);
                }
            }
        }
        self.probes.retain(|key, _| present.contains(key));
    }

    fn plan(
        &self,
        key: &ProbeKey,
        container: &Container,
        probe: &Probe,
        started_at: Timestamp,
        running: &Running<'_>,
    ) -> Planned {
        let period = seconds(probe.period_seconds).unwrap_or(PERIOD);
        let delay = seconds(probe.initial_delay_seconds).unwrap_or_default();
        let age = running.timestamp.duration_since(started_at);
        let age = Duration::try_from(age).unwrap_or_default();
        let wait = delay.saturating_sub(age);
        let (first, early) = match key.kind {
            _ if started_at < self.since => (wait.max(share(key, period)), None),
            // So that `failureThreshold` times `periodSeconds` is the time that a container has.
            ProbeKind::Liveness => (wait.max(period.saturating_sub(age)), None),
            ProbeKind::Startup | ProbeKind::Readiness => (wait + period, Some(wait)),
        };
        let grace = probe.termination_grace_period_seconds;
        let grace = grace.and_then(|seconds| u64::try_from(seconds).ok());
        Planned {
            container: container.name.clone(),
            due: running.now + first,
            period,
            early: early.map(|wait| running.now + wait),
            early_wait: match probe.exec {
                _ if early.is_none() => period,
                Some(_) => EARLY_WAIT_EXEC,
                None => EARLY_WAIT,
            },
            is_early: false,
            thresholds: Thresholds::of(probe),
            done: false,
            grace: grace.map(Duration::from_secs),
        }
    }

    /// The probes that may be made, with their times. Startup gates the other two.
    pub(crate) fn open<'a>(
        &'a self,
        pod: &'a Pod,
        results: &'a ProbeResults,
    ) -> impl Iterator<Item = (&'a ProbeKey, Instant)> {
        let allowed = move |key: &ProbeKey, planned: &Planned| {
            let mut all = probed(pod);
            let Some(container) = all.find(|one| one.name == planned.container) else {
                return false;
            };
            let started = results.started(container, &key.id);
            !planned.done && started == (key.kind != ProbeKind::Startup)
        };
        let open = self.probes.iter();
        let open = open.filter(move |(key, planned)| allowed(key, planned));
        open.map(|(key, planned)| {
            let early = planned.early.unwrap_or(planned.due);
            (key, planned.due.min(early))
        })
    }

    /// A probe is being made.
    pub(crate) fn begun(&mut self, key: &ProbeKey, now: Instant) {
        let Some(planned) = self.probes.get_mut(key) else {
            return;
        };
        planned.early = None;
        planned.is_early = now < planned.due;
        if !planned.is_early {
            planned.due = now + planned.period;
        }
    }

    /// Whether the probe in flight came early: its failure says nothing.
    pub(crate) fn is_early(&self, key: &ProbeKey) -> bool {
        self.probes.get(key).is_some_and(|planned| planned.is_early)
    }

    /// Takes an answer in; true if it changed a result. One that came too late, of a container that
    /// has ended, says nothing.
    pub(crate) fn answered(
        &mut self,
        key: &ProbeKey,
        passed: bool,
        results: &mut ProbeResults,
        now: Instant,
    ) -> bool {
        let Some(planned) = self.probes.get_mut(key).filter(|planned| !planned.done) else {
            return false;
        };
        if !passed && planned.early_wait < planned.period {
            planned.early = Some(now + planned.early_wait);
            planned.early_wait *= 2;
        }
        if !passed && planned.is_early {
            planned.thresholds.interrupt();
            return false;
        }
        let Some(verdict) = planned.thresholds.count(passed) else {
            return false;
        };
        match (key.kind, verdict) {
            (ProbeKind::Readiness, ready) => {
                if ready {
                    // From now on the period counts.
                    planned.early_wait = planned.period;
                }
                results.set_ready(&key.id, ready)
            }
            (ProbeKind::Liveness, true) => false,
            (ProbeKind::Startup, true) => {
                planned.done = true;
                results.set_started(&key.id)
            }
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                planned.done = true;
                let unhealthy = Unhealthy {
                    probe: key.kind,
                    grace: planned.grace,
                };
                results.set_unhealthy(&key.id, unhealthy)
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.probes.clear();
    }

    /// The name of the container that a probe is about.
    pub(crate) fn container(&self, key: &ProbeKey) -> Option<&str> {
        self.probes
            .get(key)
            .map(|planned| planned.container.as_str())
    }
}

/// Containers that may have probes: the main ones, and init containers that stay.
pub(crate) fn probed(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.filter(|one| is_sidecar(one)).chain(&spec.containers)
    })
}

/// A container's probe of that kind.
pub(crate) fn probe_of(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    let probe = match kind {
        ProbeKind::Startup => &container.startup_probe,
        ProbeKind::Liveness => &container.liveness_probe,
        ProbeKind::Readiness => &container.readiness_probe,
    };
    probe.as_ref()
}

/// How long one answer may take.
pub(crate) fn limit(probe: &Probe) -> Duration {
    seconds(probe.timeout_seconds).unwrap_or(LIMIT)
}

fn seconds(wanted: Option<i32>) -> Option<Duration> {
    let wanted = wanted.filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(u64::from(wanted.unsigned_abs())))
}

/// A part of the period that differs from container to container, and is the same each time.
fn share(key: &ProbeKey, period: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    period.mul_f64(f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or_default()) / 65536.0)
}
