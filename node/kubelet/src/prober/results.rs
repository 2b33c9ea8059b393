//! What the probes of a pod's containers have found so far.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodStatus};
use swiftlet_model::ids::ContainerId;

/// The three probes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Gates the other two.
    Startup,
    /// Its failure ends the container.
    Liveness,
    /// Says whether traffic may come.
    Readiness,
}

impl ProbeKind {
    /// All, in the order in which they matter.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The word in events.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// The word within a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }
}

/// Why a container must be restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// The probe that failed: liveness or startup.
    pub probe: ProbeKind,
    /// `terminationGracePeriodSeconds` of the probe; the pod's if there is none.
    pub grace: Option<Duration>,
}

/// What is known of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    started: bool,
    ready: bool,
    unhealthy: Option<Unhealthy>,
}

/// What the probes have found, by container. Nothing known: a container without a probe is started
/// and ready, one with a probe is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults {
    known: HashMap<ContainerId, Known>,
}

impl ProbeResults {
    /// The container has no startup probe, or it succeeded.
    pub fn started(&self, container: &Container, id: &ContainerId) -> bool {
        let passed = || self.known.get(id).is_some_and(|known| known.started);
        container.startup_probe.is_none() || passed()
    }

    /// The container is started, and has no readiness probe or one that succeeds.
    pub fn ready(&self, container: &Container, id: &ContainerId) -> bool {
        let passes = || self.known.get(id).is_some_and(|known| known.ready);
        self.started(container, id) && (container.readiness_probe.is_none() || passes())
    }

    /// Why the container must be restarted, if it must.
    pub fn unhealthy(&self, id: &ContainerId) -> Option<&Unhealthy> {
        self.known.get(id)?.unhealthy.as_ref()
    }

    /// Learns what the API shows: a restart of this program changes nothing for a container that
    /// still runs.
    pub fn seed(&mut self, status: &PodStatus) {
        let all = status.init_container_statuses.iter();
        for one in all.chain(&status.container_statuses).flatten() {
            let id = one.container_id.as_deref().unwrap_or_default();
            let id = ContainerId::from(id.rsplit("://").next().unwrap_or_default());
            let runs = one
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some());
            if runs && one.started == Some(true) {
                self.set_started(&id);
                self.set_ready(&id, one.ready);
            }
        }
    }

    /// The startup probe has succeeded. False if that was known.
    pub fn set_started(&mut self, id: &ContainerId) -> bool {
        !std::mem::replace(&mut self.entry(id).started, true)
    }

    /// The readiness probe's verdict. False if it is what was known.
    pub fn set_ready(&mut self, id: &ContainerId, ready: bool) -> bool {
        std::mem::replace(&mut self.entry(id).ready, ready) != ready
    }

    /// The liveness or startup probe has failed for good.
    pub fn set_unhealthy(&mut self, id: &ContainerId, unhealthy: Unhealthy) -> bool {
        let known = &mut self.entry(id).unhealthy;
        let first = known.is_none();
        known.get_or_insert(unhealthy);
        first
    }

    /// Forgets all containers but these.
    pub fn retain(&mut self, mut lives: impl FnMut(&ContainerId) -> bool) {
        self.known.retain(|id, _| lives(id));
    }

    fn entry(&mut self, id: &ContainerId) -> &mut Known {
        self.known.entry(id.clone()).or_default()
    }
}
