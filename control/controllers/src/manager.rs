//! Wires the controllers to their informers.

use std::sync::Arc;

use swiftlet_client::api::Api;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::deployment::DeploymentController;
use crate::event_ttl;
use crate::garbage_collector::GarbageCollector;
use crate::informers::Informers;
use crate::namespace::NamespaceController;
use crate::node_lifecycle::NodeLifecycleController;
use crate::replica_set::ReplicaSetController;

/// Runs all controllers until `shutdown`; each worker finishes the pass that it is in.
pub async fn run(api: Arc<dyn Api>, shutdown: CancellationToken) {
    Box::pin(run_with_clock(api, Clock::default(), shutdown)).await;
}

/// The same, on a clock of one's own.
pub async fn run_with_clock(api: Arc<dyn Api>, clock: Clock, shutdown: CancellationToken) {
    let mut informers = Informers::new(&api);
    let replica_sets = ReplicaSetController::new(&api, &mut informers, clock.clone(), &shutdown);
    let deployments = DeploymentController::new(&api, &mut informers, clock.clone(), &shutdown);
    let garbage = GarbageCollector::new(&api, &mut informers);
    let namespaces = NamespaceController::new(&api, &mut informers);
    let nodes = NodeLifecycleController::new(&api, &mut informers, clock.clone(), &shutdown);
    informers.spawn(&shutdown);
    tokio::join!(
        replica_sets.run(shutdown.clone()),
        deployments.run(shutdown.clone()),
        garbage.run(shutdown.clone()),
        namespaces.run(shutdown.clone()),
        nodes.run(shutdown.clone()),
        event_ttl::run(api, clock, shutdown),
    );
}
