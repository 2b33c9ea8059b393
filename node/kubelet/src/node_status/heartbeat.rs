//! Registers the node, keeps its object up to date, and renews its lease: two tasks, so that a slow
//! status never costs a lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use swiftlet_model::events::{EventKind, NODE_READY, STARTING};
use swiftlet_model::runtime::{RuntimeStatus, RuntimeVersion};
use tokio_util::sync::CancellationToken;

use crate::kuberuntime::backoff;
use crate::node_status::{RuntimeHealth, differs, generate, is_ready};
use crate::shared::Shared;

/// How often as long as the node is not ready: its pods wait for it.
const CHECK_PERIOD_NOT_READY: Duration = Duration::from_millis(250);
/// How long the runtime may fail to answer before the node is not ready (kubelet's
/// `maxWaitForContainerRuntime`).
const RUNTIME_SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// Part of its validity after which a lease is renewed.
const LEASE_RENEWALS: u32 = 4;

/// When the node says what. Defaults: `pkg/kubelet/apis/config/v1beta1/defaults.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How often the runtime is asked whether it is ready (`nodeStatusUpdateFrequency`).
    pub check_period: Duration,
    /// How often an unchanged object is published (`nodeStatusReportFrequency`).
    pub report_period: Duration,
    /// How long a lease is valid, in seconds (`nodeLeaseDurationSeconds`).
    pub lease_duration_s: u32,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            check_period: Duration::from_secs(10),
            report_period: Duration::from_mins(5),
            lease_duration_s: 40,
        }
    }
}

impl Heartbeat {
    /// How often the lease is renewed.
    fn lease_period(self) -> Duration {
        Duration::from_secs(self.lease_duration_s.into()) / LEASE_RENEWALS
    }
}

/// Renews the lease until `shutdown`.
pub(crate) async fn renew_lease(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut failures = 0;
    let mut connected = shared.connected.subscribe();
    let heartbeat = shared.limits.heartbeat;
    let lease_period = heartbeat.lease_period();
    let renewals = async {
        loop {
            let wait = match shared
                .doors
                .control_plane
                .renew_lease(heartbeat.lease_duration_s)
                .await
            {
                Ok(()) => {
                    failures = 0;
                    lease_period
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(%error, failures, "the lease was not renewed");
                    backoff::retry(failures).min(lease_period)
                }
            };
            tokio::select! {
                Ok(()) = connected.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    shutdown.run_until_cancelled(renewals).await;
}

/// Keeps the Node object up to date until `shutdown`.
pub(crate) async fn report(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut reporter = Reporter {
        shared,
        version: None,
        stored: None,
        failures: 0,
        runtime_answers: true,
        last_answer: None,
        unheard: false,
    };
    reporter
        .shared
        .recorder
        .node(EventKind::Normal, STARTING, "Starting kubelet.".to_owned());
    shutdown.run_until_cancelled(reporter.run()).await;
}

struct Reporter {
    shared: Arc<Shared>,
    version: Option<RuntimeVersion>,
    /// What the control plane has, and since when.
    stored: Option<(Node, Instant)>,
    failures: u32,
    /// Whether the runtime answered when it was asked last.
    runtime_answers: bool,
    /// What it last answered, and when.
    last_answer: Option<(RuntimeStatus, Instant)>,
    /// The connection is new, and the node has not been published over it.
    unheard: bool,
}

impl Reporter {
    async fn run(&mut self) {
        let mut facts = self.shared.node.clone();
        let mut connected = self.shared.connected.subscribe();
        let mut pressure = self.shared.keeper.pressure_changes();
        let mut shutting_down = self.shared.keeper.shutdown_changes();
        loop {
            let wait = self.pass().await;
            tokio::select! {
                biased;
                // The control plane may think that the node is lost.
                Ok(()) = connected.changed() => self.unheard = true,
                // When the sender is gone the facts stay as they are.
                Ok(()) = facts.changed() => {}
                Ok(()) = pressure.changed() => {}
                Ok(()) = shutting_down.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// One look at the runtime; publishes if something changed, the time has come, or the
    /// control plane is new. Answers how long to wait.
    async fn pass(&mut self) -> Duration {
        let health = self.health().await;
        let clock = &self.shared.doors.clock;
        let heartbeat = self.shared.limits.heartbeat;
        let mut facts = self.shared.node.borrow().clone();
        facts.pressure = self.shared.keeper.pressure();
        facts.shutting_down = self.shared.keeper.is_shutting_down();
        let previous = self.stored.as_ref().map(|(node, _)| node);
        let name = &self.shared.node_name;
        let node = generate(name, &facts, &health, previous, clock.timestamp());
        let ready = is_ready(&node);
        let now = clock.now();
        let due = self.unheard
            || self.stored.as_ref().is_none_or(|(stored, at)| {
                let age = now.saturating_duration_since(*at);
                differs(stored, &node) || age >= heartbeat.report_period
            });
        if due {
            if let Err(error) = self.shared.doors.control_plane.publish_node(&node).await {
                self.failures += 1;
                tracing::debug!(%error, "the node's status was not stored");
                // The runtime is looked at all the same.
                return backoff::retry(self.failures).min(heartbeat.check_period);
            }
            self.failures = 0;
            self.unheard = false;
            let was_ready = self
                .stored
                .as_ref()
                .is_some_and(|(stored, _)| is_ready(stored));
            if ready && !was_ready {
                let message = format!("Node {name} status is now: NodeReady");
                self.shared
                    .recorder
                    .node(EventKind::Normal, NODE_READY, message);
            }
            self.stored = Some((node, now));
        }
        if ready && self.runtime_answers {
            heartbeat.check_period
        } else {
            CHECK_PERIOD_NOT_READY
        }
    }

    async fn health(&mut self) -> RuntimeHealth {
        let runtime = &self.shared.doors.runtime;
        let status = runtime.status().await.map_err(|error| error.to_string());
        if status.is_err() {
            // It may come back in another version.
            self.version = None;
        } else if self.version.is_none() {
            self.version = runtime.version().await.ok();
        }
        if status.is_ok() && !self.runtime_answers {
            self.shared.runtime_back.send_modify(|count| *count += 1);
        }
        self.runtime_answers = status.is_ok();
        let now = self.shared.doors.clock.now();
        let status = match (status, &self.last_answer) {
            (Ok(status), _) => {
                self.last_answer = Some((status.clone(), now));
                Ok(status)
            }
            // One call that fails is no news: the runtime may be busy, or be restarted.
            (Err(_), Some((last, at)))
                if now.saturating_duration_since(*at) < RUNTIME_SILENCE_LIMIT =>
            {
                Ok(last.clone())
            }
            (Err(error), _) => Err(error),
        };
        RuntimeHealth {
            version: self.version.clone(),
            status,
        }
    }
}
